"""What holds for every test: reproducible properties, no deadlines, no blocking call on the event loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.support.effort import times

# A shell starts what runs in its background with SIGINT ignored, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.support.servers", "tests.support.browser"]  # in this order: the second imports the first

# A deadline measures the machine, not the code. In CI the same examples every time: red means a change.
settings.register_profile("local", max_examples=times(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def no_blocking(request: pytest.FixtureRequest) -> Iterator[None]:
    """A call from `gateway` that blocks the event loop (`time.sleep`, a file, a socket) is an error."""
    if request.node.get_closest_marker("allow_blocking"):
        yield
        return
    with blockbuster_ctx("gateway"):
        yield
