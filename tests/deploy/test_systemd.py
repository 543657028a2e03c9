"""deploy/agui-gateway.service: what systemd says of it, and its command with several workers on one SQLite file."""

from __future__ import annotations

import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from time import monotonic

import httpx
import psutil
import pytest

from gateway import Settings
from tests.deploy.programs import DEPLOY, Program, Viewer, free_ports, gateway_environment, headers, is_up
from tests.deploy.units import FOLDER, UNIT, Unit
from tests.docs.pages import page
from tests.support.servers import eventually

EXPOSURE = 20  # of 100; systemd calls it OK
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="scripts/recipes installs systemd")


@needs_systemd
def test_systemd_takes_every_line_and_finds_little_exposed(tmp_path: Path) -> None:
    file = tmp_path / "agui-gateway.service"
    bin_folder = Path(sys.executable).parent
    text = UNIT.read_text("utf-8").replace(f"{FOLDER}/venv/bin", str(bin_folder))
    file.write_text(text.replace(f"{FOLDER}/app", str(DEPLOY)), "utf-8")
    verified = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert [line for line in verified.stderr.splitlines() if file.name in line] == []
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", str(file)]
    secured = subprocess.run(command, capture_output=True, text=True, check=False)
    assert secured.returncode == 0, secured.stdout[-300:]


def test_its_numbers_fit_the_drain_and_its_secrets_are_elsewhere() -> None:
    unit, settings = Unit(), Settings()
    assert int(unit.one("TimeoutStopSec")) > settings.drain_timeout + 2
    assert (unit.one("KillMode"), unit.one("KillSignal")) == ("mixed", "SIGTERM")
    assert (unit.one("Type"), unit.one("Restart")) == ("exec", "on-failure")
    assert not [line for line in unit.all("Environment") if "KEY" in line or "@" in line]
    assert not unit.one("EnvironmentFile").startswith("-"), "without its secrets it must not start"


def test_its_workers_share_a_file_and_a_stop_lets_runs_end(tmp_path: Path) -> None:
    unit, (port,) = Unit(), free_ports(1)
    url = f"http://127.0.0.1:{port}"
    service = unit.start(tmp_path, port, AGUI_GATEWAY_LEASE_SECONDS="2")
    try:
        service.wait_for("(Serving) app:gateway")
        eventually(lambda: is_up(url), what=service.output)
        for number in range(8):  # a connection each: they come to both workers
            run(url, f"run-{number}", to=60)
        victim = psutil.Process(service.pid).children()[0]
        victim.kill()
        eventually(lambda: len(psutil.Process(service.pid).children()) == int(worker_count(unit)), what=service.output)
        viewers = [Viewer(url, f"run-{number}") for number in range(8)]
        run(url, "last", to=60)
        viewers.append(Viewer(url, "last"))
        eventually(lambda: all(viewer.ids for viewer in viewers), within=20, what="every run can be read")
        begun = monotonic()
        service.send(signal.Signals[unit.one("KillSignal")])
        for viewer in viewers:
            viewer.wait()
            viewer.saw_every_event_once()
            assert (viewer.last["type"], viewer.last.get("code")) in (
                ("RUN_FINISHED", None),
                ("RUN_ERROR", "interrupted"),  # of the worker that died
            )
        assert viewers[-1].last["type"] == "RUN_FINISHED"
        assert service.exit_code(int(unit.one("TimeoutStopSec")) - (monotonic() - begun)) == 0
    finally:
        service.close()
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("runs.db*")}
    assert modes == {0o600}


def test_workers_without_a_shared_store_are_refused() -> None:
    refused = Program("agui-gateway serve app:gateway --workers 2", DEPLOY, gateway_environment())
    try:
        assert refused.exit_code(20) == 2
        command, answer = page("docs/how-to/deploy.md").block("", "--workers 2").commands
        assert (refused.command, refused.output) == (f"exec {command}", f"{answer}\n")
    finally:
        refused.close()


def test_without_its_keys_it_does_not_start() -> None:
    env = {name: value for name, value in gateway_environment().items() if name != "API_KEYS"}
    refused = Program("agui-gateway serve app:gateway", DEPLOY, env)
    try:
        assert refused.exit_code(20) != 0
        assert "API_KEYS" in refused.output
    finally:
        refused.close()


def worker_count(unit: Unit) -> str:
    (count,) = (line.partition("=")[2] for line in unit.all("Environment") if line.startswith("AGUI_GATEWAY_WORKERS="))
    return count


def run(url: str, run_id: str, to: int) -> None:
    body = {"runId": run_id, "arguments": {"to": to, "pause": 0.05}}
    with httpx.Client(base_url=url, headers=headers(), trust_env=False, timeout=20) as client:
        assert client.post("/tools/count", json=body, headers={"prefer": "respond-async"}).status_code == 202
