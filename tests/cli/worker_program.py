"""A worker for test_workers.py: writes down that it has started, and serves nothing until it is told to end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from gateway.cli.workers import inherited_listener, say_ready

listener, announces = inherited_listener()
if sys.argv[1] == "die":
    sys.exit(7)
log = Path(sys.argv[2])
ended: list[int] = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
with log.open("a", encoding="utf-8") as file:
    file.write(f"{os.getpid()} {listener.getsockname()[1]} {announces}\n")
say_ready()
while not ended:
    signal.pause()
