"""The gateway in front of agent.py, as anybody would serve it (`agui-gateway serve proxied:gateway`)."""

from __future__ import annotations

import os

from gateway import Gateway

PATHS = ("clean", "mended", "piecewise", "paced")

gateway = Gateway(agents={path: f"{os.environ['AGENT_URL']}/{path}" for path in PATHS})
