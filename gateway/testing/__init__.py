"""Helpers to test tools and clients of a gateway; nothing in here is needed to run one.

`run_tool` runs one tool through the real executor, without HTTP, and answers what it asks. `EventCollector` reads the
stream of a running gateway and survives lost connections; `disconnect_after` loses one on purpose.
"""

from gateway.testing.clients import EventCollector, disconnect_after
from gateway.testing.events import Event
from gateway.testing.tools import ContextOptions, run_tool

__all__ = ["ContextOptions", "Event", "EventCollector", "disconnect_after", "run_tool"]
