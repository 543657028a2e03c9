"""The nginx of docs/how-to/operate.md, with its lines taken from there."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.docs.pages import page
from tests.docs.shells import Background, environment, free_port
from tests.support.servers import Serve, Server, eventually

OPERATE = page("docs/how-to/operate.md")
PUBLIC = "tools.example.com"
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {lines}
    }}
}}
"""


@pytest.fixture(scope="module")
def gateway(serve: Serve) -> Server:
    return serve("serve", "tests.interop.tools_app:gateway", "--allowed-hosts", PUBLIC)


@pytest.fixture(scope="module")
def proxied(gateway: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client that reaches the gateway by its public name, through nginx."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    lines = OPERATE.block("nginx").text.replace("http://127.0.0.1:8000", gateway.url)
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port, lines=lines), "utf-8")
    assert Path(NGINX).is_file(), "nginx is not installed: run scripts/install-test."
    nginx = Background(f"exec {NGINX} -p {folder} -c {folder}/nginx.conf", folder, environment())
    host = {"host": f"{PUBLIC}:{port}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=host, trust_env=False, timeout=20) as client:
            eventually(lambda: up(client), what=f"nginx serves; it says: {nginx.output}")
            yield client
    finally:
        nginx.close()


def up(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.ConnectError:
        return False


def test_events_pass_while_the_tool_works(proxied: httpx.Client) -> None:
    with proxied.stream("POST", "/tools/wait_forever", json={"runId": "live"}) as answer:
        seen: list[str] = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                seen.append(event.get("name", event["type"]))
                if seen[-1] == "tool.progress":  # it waits for ever: nothing but Stop ends it
                    assert proxied.get("/runs/live").json()["status"] == "running"
                    assert proxied.post("/runs/live/stop").status_code == 202
    assert seen[-1] == "RUN_FINISHED"
    assert "run.stopping" in seen


def test_the_page_is_of_the_gateways_own_origin(proxied: httpx.Client) -> None:
    origin = f"http://{proxied.headers['host']}"
    cookie = {"cookie": f"agui_session={'c' * 24}"}
    own = proxied.post("/tools/burst", json={"arguments": {"count": 1}}, headers={**cookie, "origin": origin})
    assert own.status_code == 200
    foreign = proxied.post("/tools/burst", json={}, headers={**cookie, "origin": "https://evil.example"})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "bad_origin")


def test_a_history_of_two_megabytes_reaches_the_gateway(proxied: httpx.Client) -> None:
    message = {"id": "m", "role": "user", "content": "x" * 2_000_000}
    body = {"threadId": "t", "runId": "r", "state": {}, "messages": [message], "tools": [], "context": []}
    answer = proxied.post("/agents/tools", json={**body, "forwardedProps": {}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_other_names_are_refused(proxied: httpx.Client) -> None:
    answer = proxied.get("/tools", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "bad_host")


def test_what_the_forwarded_headers_decide(gateway: Server) -> None:
    with gateway.client(headers={"host": PUBLIC}) as client:
        far = client.get("/tools", headers={"x-forwarded-for": "203.0.113.7"})
        assert (far.status_code, far.json()["error"]["code"]) == (403, "anonymous_not_allowed")
        assert client.get("/tools").status_code == 200
        page_of_https = {"origin": f"https://{PUBLIC}", "cookie": f"agui_session={'c' * 24}"}
        body = {"arguments": {"count": 1}}
        behind_http = client.post("/tools/burst", json=body, headers=page_of_https)
        assert (behind_http.status_code, behind_http.json()["error"]["code"]) == (403, "bad_origin")
        behind_https = client.post("/tools/burst", json=body, headers={**page_of_https, "x-forwarded-proto": "https"})
        assert behind_https.status_code == 200


def test_nginx_takes_the_lines_of_the_page(proxied: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text(
        CONFIG.format(folder=tmp_path, port=1, lines=OPERATE.block("nginx").text), "utf-8"
    )
    done = subprocess.run(
        [NGINX, "-t", "-q", "-p", str(tmp_path), "-c", "nginx.conf"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
