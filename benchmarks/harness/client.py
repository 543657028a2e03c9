"""The C client, and the few requests that Python makes itself."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import Any

from harness.servers import ROOT, Server

SSEC = ROOT / "build" / "ssec"
SESSION = "benchmark-session-0001"


def command(server: Server, path: str, *options: object, body: object = None) -> list[str]:
    words = [str(SSEC), str(server.port), path, "-H", f"X-Session-Id: {SESSION}", *map(str, options)]
    if body is not None:
        words += ["-d", json.dumps(body)]
    return words


def ssec(server: Server, path: str, *options: object, body: object = None, order: bool = True) -> dict[str, Any]:
    """Runs the client to its end. Raises when a connection failed or, with `order`, an event was out of order."""
    done = subprocess.run(command(server, path, *options, body=body), capture_output=True, text=True, check=True)
    return result(done.stdout, done.stderr, order)


def background(server: Server, path: str, *options: object, body: object = None) -> subprocess.Popen[str]:
    """Starts the client; `result(*process.communicate())` is what it says."""
    words = command(server, path, *options, body=body)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(out: str, err: str, order: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out)
    if found["failed"] or (order and found["bad"]):
        raise RuntimeError(f"{found['failed']} connections failed, {found['bad']} events out of order: {err[:300]}")
    return found


def request(server: Server, method: str, path: str, body: object = None, **headers: str) -> Any:
    """One JSON request; header names are written with `_` for `-`."""
    data = None if body is None else json.dumps(body).encode()
    message = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data=data, method=method)
    for name, text in {"Content-Type": "application/json", "X-Session-Id": SESSION, **headers}.items():
        message.add_header(name.replace("_", "-"), text)
    with urllib.request.urlopen(message, timeout=60) as answer:
        return json.loads(answer.read() or b"null")
