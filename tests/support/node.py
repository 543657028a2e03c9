"""Runs the Node programs of tests/interop: one task in, one line of JSON out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["INTEROP", "node_environment", "run_node"]

INTEROP = Path(__file__).parents[1] / "interop"
NODE_SECONDS = 60


def node_environment() -> dict[str, str]:
    """The environment without what would change a client: proxies, development mode, switched-off warnings."""
    unwanted = {
        "node_env",
        "node_options",
        "suppress_transformation_warnings",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    }
    return {name: value for name, value in os.environ.items() if name.lower() not in unwanted}


def run_node(program: Path, **task: Any) -> dict[str, Any]:
    """What the program printed; `AssertionError` with its stderr when it fails or writes anything there."""
    assert (INTEROP / "node_modules").is_dir(), "The npm packages are not installed: run scripts/install-test."
    done = subprocess.run(
        ["node", str(program), json.dumps(task)],
        cwd=INTEROP,
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=NODE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{program.name} ended with {done.returncode}:\n{done.stderr}"
    assert done.stderr == "", f"{program.name} complains:\n{done.stderr}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
