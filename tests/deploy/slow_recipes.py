"""What takes longer than a test may: the image made and run, the whole drain, what others say of the files.

Not among the tests by its name; `scripts/recipes` runs it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import httpx
import pytest

from gateway import Settings
from gateway.http.openapi import published_files
from tests.deploy.image import DOCKERFILE, ROOT, Image, built
from tests.deploy.programs import DEPLOY, KEY, Program, Viewer, free_ports, headers, is_up
from tests.deploy.test_kubernetes import FILES
from tests.deploy.test_systemd import run
from tests.deploy.units import FOLDER, SECRETS, UNIT, Unit
from tests.docs.pages import page
from tests.support.servers import eventually

# Tools of others that only this file needs, in the versions that it was written with.
KUBERNETES_VALIDATE = "kubernetes-validate==1.37.0"
DOCKERFILE_UTILS = "dockerfile-utils@0.16.3"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("image")
    # Another user runs it.
    for above in (folder, folder.parent, folder.parent.parent):
        above.chmod(0o755)
    return built(ROOT, folder, Path(getattr(sys, "_base_executable", sys.executable)).resolve())


def as_its_user(image: Image) -> str:
    """What a command begins with so that it runs as the image's user; as root only, who else could not change to it.

    The base image's Python can be read by everybody; that of this machine may be in somebody's home.
    """
    if os.geteuid() != 0:
        return ""
    user, _, group = image.user.partition(":")
    read = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search --bounding-set=-all,+dac_read_search"
    return f"setpriv --reuid={user} --regid={group} --clear-groups {read} --no-new-privs "


def shell_words(image: Image, command: list[str]) -> str:
    return as_its_user(image) + subprocess.list2cmdline(command) if command else ""


def environment_of(image: Image, **more: str) -> dict[str, str]:
    return {name: value for name, value in image.environment.items() if not name.startswith("PIP_")} | more


@pytest.fixture(scope="module")
def running(image: Image) -> Iterator[tuple[Program, str]]:
    (port,) = free_ports(1)
    env = environment_of(image, API_KEYS=f"alice:{KEY}", AGUI_GATEWAY_PORT=str(port), AGUI_GATEWAY_PAGE="true")
    program = Program(shell_words(image, image.command), image.place(""), env)
    try:
        program.wait_for("(Serving) app:gateway")
        yield program, f"http://127.0.0.1:{port}"
    finally:
        program.close()


def test_the_image_has_what_it_serves_and_nothing_else(image: Image) -> None:
    files = list(image.files())
    packages = "opt/agui-gateway/lib/"
    inside = {re.sub(r".*/site-packages/", "", name) for name in files if name.startswith(packages)}
    assert {"gateway/_web/index.html", "gateway/_web/page-tools.js", "gateway/py.typed", "redis/__init__.py"} <= inside
    assert {name for name in files if not name.startswith("opt/agui-gateway/")} == {"app/app.py"}
    tops = {name.partition("/")[0] for name in inside}
    assert tops & {"tests", "pip", "setuptools", "hatchling", "editables", "pytest", "web-demo", "benchmarks"} == set()
    assert not [name for name in files if re.search(r"(^|/)(\.git|\.env|\.venv|id_\w+)(/|$)|\.(key|whl|db)$", name)]
    assert not [name for name in inside if name.startswith("gateway/") and "test_" in name]
    for name in inside:
        if name.startswith("gateway/") and name.endswith((".py", ".js")):
            assert "PRIVATE KEY" not in (next(image.root.glob(f"{packages}*/site-packages")) / name).read_text("utf-8")


def test_everybody_can_read_it_and_only_root_can_change_it(image: Image) -> None:
    for name in image.files():
        path = image.root / name
        if not path.is_symlink():
            mode = path.stat().st_mode
            assert mode & stat.S_IROTH, name
            assert not mode & (stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID), name


def test_the_command_serves_its_page_its_tools_and_its_schemas(running: tuple[Program, str]) -> None:
    program, url = running
    with httpx.Client(base_url=url, headers=headers() | {"host": "127.0.0.1"}, trust_env=False, timeout=20) as client:
        assert "<html" in client.get("/").text
        assert client.get("/page-tools.js").headers["content-type"].startswith("text/javascript")
        assert {tool["name"] for tool in client.get("/tools").json()["items"]} == {"count", "order"}
        assert client.get("/openapi.json").json()["openapi"].startswith("3.")
        for name in published_files():
            if "/" not in name and name.endswith(".schema.json"):
                assert client.get(f"/schemas/{name}").status_code == 200, name
        body = {"arguments": {"to": 2, "pause": 0}}
        answer = client.post("/tools/count", json=body, headers={"accept": "application/json"}).json()
        assert answer["structuredContent"] == {"counted": 2}
        assert client.get("/tools", headers={"authorization": "Bearer x"}).status_code == 401
    if os.geteuid() == 0:
        user = Path(f"/proc/{program.pid}/status").read_text("utf-8")
        assert re.search(r"^Uid:\t10001\t10001", user, re.MULTILINE)


def test_its_health_check_tells_the_living_from_the_dead(image: Image, running: tuple[Program, str]) -> None:
    _, url = running
    (free,) = free_ports(1)
    for port, alive in ((url.rpartition(":")[2], True), (str(free), False)):
        env = environment_of(image, AGUI_GATEWAY_PORT=port, http_proxy="http://127.0.0.1:9")
        done = subprocess.run(
            [str(image.place("/opt/agui-gateway/bin/python")), *image.health[1:]],
            env=env, capture_output=True, timeout=30, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) is alive


def test_without_keys_it_does_not_start(image: Image) -> None:
    refused = Program(shell_words(image, image.command), image.place(""), environment_of(image))
    try:
        assert refused.exit_code(30) != 0
        assert "API_KEYS" in refused.output
    finally:
        refused.close()


def test_its_stop_signal_ends_it_with_code_0(image: Image, running: tuple[Program, str]) -> None:
    program, _ = running
    program.send(signal.Signals[image.stop_signal])
    assert program.exit_code(5) == 0


def test_the_commands_of_the_page_install_what_the_unit_starts(image: Image, tmp_path: Path) -> None:
    """Below a folder instead of the root; `systemctl` only writes down what it is told."""
    site, root = tmp_path / "checkout", tmp_path / "root"
    for folder in (site / "bin", root / "opt", root / "etc/systemd/system"):
        folder.mkdir(parents=True)
    (site / "deploy").symlink_to(DEPLOY)
    (site / "dist").symlink_to(image.root.with_name("stage-0") / "dist")
    (site / "bin/systemctl").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/told\n', "utf-8")
    (site / "bin/systemctl").chmod(0o755)
    text = page("docs/how-to/deploy.md").block("", "systemctl enable").text
    script = re.sub(r"(?<=[ =])/(?=(?:opt|etc)/)|^/(?=opt/)", f"{root}/", text, flags=re.MULTILINE)
    env = {**os.environ, "PATH": f"{site}/bin:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", script], cwd=site, env=env, check=True, stdin=subprocess.DEVNULL)
    assert (tmp_path / "told").read_text("utf-8") == "daemon-reload\nenable --now agui-gateway\n"
    assert (root / "etc/systemd/system" / UNIT.name).read_text("utf-8") == UNIT.read_text("utf-8")
    secrets = root / SECRETS.lstrip("/")
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert re.fullmatch(r"API_KEYS=alice:[\w-]{40,}\n", secrets.read_text("utf-8"))
    command = Unit().one("ExecStart").replace(FOLDER, f"{root}{FOLDER}")
    (port,) = free_ports(1)
    given = dict([secrets.read_text("utf-8").strip().split("=", 1)])
    program = Program(f"{command} --port {port}", root / FOLDER.lstrip("/") / "app", {**os.environ, **given})
    try:
        program.wait_for("(Serving) app:gateway")
        program.send(signal.SIGTERM)
        assert program.exit_code(5) == 0
    finally:
        program.close()


def test_the_whole_drain_fits_into_the_units_time(tmp_path: Path) -> None:
    unit, (port,) = Unit(), free_ports(1)
    url = f"http://127.0.0.1:{port}"
    service = unit.start(tmp_path, port)
    try:
        service.wait_for("(Serving) app:gateway")
        eventually(lambda: is_up(url), what=service.output)
        run(url, "long", to=100_000)
        begun = monotonic()
        service.send(signal.Signals[unit.one("KillSignal")])
        assert service.exit_code(int(unit.one("TimeoutStopSec"))) == 0
        took = monotonic() - begun
        assert Settings().drain_timeout - 1 < took < Settings().drain_timeout + 2.5
        again = unit.start(tmp_path, port)
        again.wait_for("(Serving) app:gateway")
        viewer = Viewer(url, "long")
        viewer.wait()
        viewer.saw_every_event_once()
        assert viewer.last["code"] == "interrupted"
        again.send(signal.SIGTERM)
        assert again.exit_code(10) == 0
        again.close()
    finally:
        service.close()


def test_the_manifests_fit_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [str(tmp_path / "venv/bin/pip"), "install", "-qq", "--disable-pip-version-check", KUBERNETES_VALIDATE]
    subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
    for version in ("1.31", "1.34", "1.37"):
        command = [str(tmp_path / "venv/bin/kubernetes-validate"), "--strict", "-k", version, *map(str, FILES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (done.stdout + done.stderr).count(" passed for resource ") == len(FILES)


def test_a_linter_of_dockerfiles_finds_nothing(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    assert npm is not None, "npm is not installed: run scripts/install-test."
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", DOCKERFILE_UTILS]
    subprocess.run(install, cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    script = (
        "const { validate } = require('dockerfile-utils');"
        "const text = require('fs').readFileSync(process.argv[1], 'utf8');"
        "for (const found of validate(text)) console.log(found.range.start.line + 1, found.message);"
    )
    done = subprocess.run(
        ["node", "-e", script, str(DOCKERFILE)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
