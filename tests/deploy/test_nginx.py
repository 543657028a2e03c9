"""deploy/nginx.conf and deploy/redis.conf as they are, before two gateways: through it, and while one of them goes."""

from __future__ import annotations

import json
import re
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import psutil
import pytest
import uvicorn

from gateway import Settings
from tests.deploy.programs import DEPLOY, NAME, Program, Viewer, free_ports, gateway_environment, headers, is_up
from tests.docs.pages import page
from tests.support.redis import RedisServer
from tests.support.servers import eventually

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
CONFIG = DEPLOY / "nginx.conf"
COMMANDS = page("docs/how-to/deploy.md").block("", "--port 8001").commands
LEASE, DRAIN = 2, 4
LOOKS = count()
# What stands around the recipe in a distribution's nginx.conf.
AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/main.log;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/agui-gateway.conf;
}}
"""


@dataclass
class Site:
    """Two gateways, A and B, and nginx before them."""

    folder: Path
    redis: RedisServer
    ports: tuple[int, int]
    secure: int
    plain: int
    context: ssl.SSLContext
    gateways: dict[str, Program] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.secure}"

    def direct(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports['AB'.index(name)]}"

    def start(self, name: str) -> None:
        """Starts the gateway, or starts it anew."""
        port = self.ports["AB".index(name)]
        (command,) = (line for line in COMMANDS if f" --port 800{'AB'.index(name) + 1} " in line)
        for old, new in ((r"--port \d+", f"--port {port}"), (r"redis://\S+", self.redis.url)):
            command = re.sub(old, new, command)
        command += f" --lease-seconds {LEASE} --drain-timeout {DRAIN}"
        if name in self.gateways:
            self.gateways[name].close()
        self.gateways[name] = Program(command, DEPLOY, gateway_environment())

    def ready(self) -> None:
        for name, program in self.gateways.items():
            program.wait_for(r"(Serving) app:gateway")
            eventually(partial(is_up, self.direct(name)), what=f"{name} is ready: {program.output}")
            eventually(partial(self.sends_to, name), within=20, what=f"nginx sends requests to {name}")

    def sends_to(self, name: str) -> bool:
        """Whether nginx's next request goes there; one that has been away gets none for some seconds."""
        mark = f"look-{next(LOOKS)}"
        with suppress(httpx.TransportError), self.client() as client:
            client.get("/healthz", headers={"x-request-id": mark})
        upstream = f"upstream=127.0.0.1:{self.ports['AB'.index(name)]} "
        return any(upstream in line for line in self.log.splitlines() if f"request={mark} " in line)

    def client(self, url: str = "", **options: Any) -> httpx.Client:
        return httpx.Client(
            base_url=url or self.url, headers=headers(), verify=self.context, trust_env=False, timeout=30, **options
        )

    def run(self, name: str, run_id: str, to: int, pause: float) -> None:
        """Starts a run on this gateway."""
        body = {"runId": run_id, "arguments": {"to": to, "pause": pause}}
        with self.client(self.direct(name)) as client:
            assert client.post("/tools/count", json=body, headers={"prefer": "respond-async"}).status_code == 202

    def viewers(self, run_id: str, number: int = 4) -> list[Viewer]:
        """Through nginx; they come to both gateways, one after the other."""
        found = [Viewer(self.url, run_id, self.context) for _ in range(number)]
        eventually(lambda: all(viewer.ids for viewer in found), within=20, what=f"viewers of {run_id} see something")
        return found

    @property
    def log(self) -> str:
        path = self.folder / "agui-gateway.access.log"
        return path.read_text("utf-8") if path.exists() else ""


def certificate(folder: Path) -> ssl.SSLContext:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"]
    command += ["-keyout", str(folder / f"{NAME}.key"), "-out", str(folder / f"{NAME}.crt")]
    subprocess.run(command, check=True, capture_output=True)
    return ssl.create_default_context(cafile=str(folder / f"{NAME}.crt"))


def configured(site: Site) -> str:
    """The recipe with this test's ports and folders in it, and nothing else changed."""
    text = CONFIG.read_text("utf-8")
    for old, new, times in (
        ("listen 80;", f"listen 127.0.0.1:{site.plain};", 1),
        ("listen 443 ssl http2;", f"listen 127.0.0.1:{site.secure} ssl http2;", 1),
        ("127.0.0.1:8001", f"127.0.0.1:{site.ports[0]}", 2),
        ("127.0.0.1:8002", f"127.0.0.1:{site.ports[1]}", 2),
        ("~:8001$", f"~:{site.ports[0]}$", 1),
        ("/etc/nginx/tls/", f"{site.folder}/", 2),
        ("/var/log/nginx/", f"{site.folder}/", 2),
    ):
        assert text.count(old) == times, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("nginx")
    assert Path(NGINX).is_file(), "nginx is not installed: run scripts/install-test."
    redis = RedisServer("--include", str(DEPLOY / "redis.conf"))
    a, b, secure, plain = free_ports(4)
    found = Site(folder, redis, (a, b), secure, plain, certificate(folder))
    (folder / "agui-gateway.conf").write_text(configured(found), "utf-8")
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder), "utf-8")
    nginx = Program(f"{NGINX} -p {folder} -c {folder}/nginx.conf", folder, gateway_environment())
    try:
        found.start("A")
        found.start("B")
        found.ready()
        yield found
    finally:
        for program in (nginx, *found.gateways.values()):
            program.close()
        redis.close()


def test_redis_is_one_that_forgets_nothing(site: Site) -> None:
    with site.redis.client() as client:
        found: Any = client.config_get("maxmemory-policy", "appendonly", "bind")
    assert found == {"maxmemory-policy": "noeviction", "appendonly": "yes", "bind": "127.0.0.1"}


def test_a_run_is_followed_over_both_and_stopped_from_the_other_one(site: Site) -> None:
    site.run("A", "stopped", to=1000, pause=0.05)
    viewers = site.viewers("stopped")
    with site.client(site.direct("B")) as other:
        assert other.post("/runs/stopped/stop", json={"reason": "enough"}).status_code == 202
    for viewer in viewers:
        viewer.wait(10)
        viewer.saw_every_event_once()
        assert (viewer.last["type"], viewer.last["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
        assert viewer.cuts == 0
    assert len({len(viewer.ids) for viewer in viewers}) == 1
    served = {line.partition(" upstream=")[2].split()[0] for line in site.log.splitlines() if "/stopped/ev" in line}
    assert served == {f"127.0.0.1:{port}" for port in site.ports}


def test_a_question_is_answered_through_nginx_and_events_come_at_once(site: Site) -> None:
    for number in (1, 2):  # nginx takes turns: the answer comes by the other gateway, then by the same one
        run_id = f"asked-{number}"
        with (
            site.client() as client,
            client.stream("POST", "/tools/order", json={"runId": run_id, "arguments": {"item": "pears"}}) as answer,
        ):
            for line in answer.iter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if event.get("name") == "tool.waiting":  # it is here while the tool still waits
                    with site.client(site.direct("B") if number == 1 else "") as person:
                        given = {"interruptId": event["value"]["interruptId"], "status": "resolved", "payload": 3}
                        assert person.post(f"/runs/{run_id}/input", json=given).status_code == 202
        assert event["type"] == "RUN_FINISHED", event
        assert event["result"]["structuredContent"] == {"item": "pears", "ordered": 3}


def test_large_histories_pass_and_larger_ones_do_not(site: Site) -> None:
    body = {"threadId": "t", "runId": "large", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    with site.client() as client:
        for size, status in ((20_000_000, 400), (34_000_000, 413)):
            message = {"id": "m", "role": "user", "content": "x" * size}
            assert client.post("/agents/tools", json={**body, "messages": [message]}).status_code == status


def test_the_page_is_of_the_gateways_own_origin_by_https_only(site: Site) -> None:
    plain = httpx.get(f"http://127.0.0.1:{site.plain}/x?y=1", headers={"host": NAME}, trust_env=False)
    assert (plain.status_code, plain.headers["location"]) == (301, f"https://{NAME}/x?y=1")
    # No credential but a cookie, which the authenticator does not know: the origin is looked at before that.
    with httpx.Client(base_url=site.url, verify=site.context, trust_env=False, headers={"host": NAME}) as client:
        for origin, status in ((f"https://{NAME}", 401), ("https://evil.example", 403)):
            assert client.post("/tools/count", json={}, headers={"origin": origin}).status_code == status


def test_requests_have_ids_connections_are_kept_and_tickets_are_in_no_log(site: Site) -> None:
    site.run("A", "ticketed", to=1, pause=0)
    with site.client() as client:
        for _ in range(20):
            assert client.get("/tools").status_code == 200
        upstream = psutil.Process(site.gateways["A"].pid).net_connections("tcp")
        incoming = [c for c in upstream if c.status == "ESTABLISHED" and c.laddr.port == site.ports[0]]
        assert 1 <= len(incoming) <= 10
        answer = client.get("/tools", headers={"x-request-id": "mine-1"})
        ticket = client.post("/runs/ticketed/ticket", json={}).json()["ticket"]
        client.headers.pop("authorization")
        assert client.get(f"/runs/ticketed/events?ticket={ticket}").status_code == 200
    line = next(line for line in site.log.splitlines() if "request=mine-1" in line)
    assert f"gateway_request={answer.headers['x-request-id']}" in line
    eventually(lambda: '"GET /runs/ticketed/events" 200' in site.log, what="the line of the stream")
    assert ticket not in site.log
    assert "ticket=" not in (site.folder / "agui-gateway.error.log").read_text("utf-8")


def test_one_that_is_killed_costs_its_own_runs_and_no_event_of_the_others(site: Site) -> None:
    site.run("A", "lost", to=1000, pause=0.05)
    site.run("B", "kept", to=60, pause=0.05)
    lost, kept = site.viewers("lost"), site.viewers("kept")
    site.gateways["A"].send(signal.SIGKILL)
    site.gateways["A"].exit_code(10)
    with site.client() as client:  # nobody but the viewers of A notices
        for number in range(6):
            body = {"runId": f"after-{number}", "arguments": {"to": 1, "pause": 0}}
            answer = client.post("/tools/count", json=body, headers={"accept": "application/json"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["status"] == "completed"
    for viewer in (*lost, *kept):
        viewer.wait()
        viewer.saw_every_event_once()
    assert sum(viewer.cuts for viewer in kept) > 0, "some of them came by the gateway that died"
    assert {viewer.last["type"] for viewer in kept} == {"RUN_FINISHED"}
    assert {len(viewer.ids) for viewer in kept} == {len(kept[0].ids)}
    numbers = [event["value"]["n"] for event in kept[0].events if event.get("name") == "counted"]
    assert numbers == list(range(1, 61))
    assert {(viewer.last["type"], viewer.last["code"]) for viewer in lost} == {("RUN_ERROR", "interrupted")}
    (result,) = (event["value"] for event in lost[0].events if event.get("name") == "tool.result")
    assert (result["status"], result["isError"]) == ("interrupted", True)
    site.start("A")
    site.ready()


def test_one_that_drains_sends_its_viewers_over_and_takes_no_run_that_it_cannot_end(site: Site) -> None:
    site.run("A", "short", to=40, pause=0.05)
    site.run("A", "long", to=1000, pause=0.05)
    site.run("B", "other", to=60, pause=0.05)
    short, long, other = site.viewers("short"), site.viewers("long"), site.viewers("other")
    begun = monotonic()
    site.gateways["A"].send(signal.SIGTERM)
    eventually(lambda: not is_up(site.direct("A")), what="it says that it drains")

    def call(number: int) -> tuple[int, str]:
        with site.client() as client:
            body = {"arguments": {"to": 1, "pause": 0}}
            answer = client.post("/tools/count", json=body, headers={"accept": "application/json"})
            return answer.status_code, answer.json().get("status", answer.text)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(call, range(24))) == {(200, "completed")}
    assert site.gateways["A"].exit_code(DRAIN + 2 - (monotonic() - begun)) == 0
    for viewer in (*short, *long, *other):
        viewer.wait()
        viewer.saw_every_event_once()
    assert {viewer.last["type"] for viewer in (*short, *other)} == {"RUN_FINISHED"}
    assert {viewer.last["code"] for viewer in long} == {"interrupted"}
    assert len({len(viewer.ids) for viewer in long}) == 1
    assert sum(viewer.cuts for viewer in short) >= 1
    assert all(viewer.cuts <= 3 for viewer in (*short, *long, *other))


def test_the_numbers_fit_the_gateways_own() -> None:
    settings, text = Settings(), CONFIG.read_text("utf-8")
    assert f"client_max_body_size    {settings.max_input_bytes // 2**20}m;" in text
    assert "proxy_read_timeout     120s;" in text
    assert settings.keep_alive * 4 <= 120
    assert settings.tool_timeout * 4 <= 120
    closes = uvicorn.Config("app", host="127.0.0.1", log_config=None).timeout_keep_alive
    (kept,) = re.findall(r"    keepalive_timeout (\d+)s;", text)
    assert int(kept) < closes, "nginx has to be the one that closes an idle connection"
