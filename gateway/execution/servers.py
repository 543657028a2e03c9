"""What becomes of a call whose tool is run by another server, when that server does not answer."""

from __future__ import annotations

__all__ = ["ServerDown", "ServerLost"]


class ServerDown(Exception):
    """It could not be reached, so nothing has run: the call is `unavailable`."""


class ServerLost(Exception):
    """The connection broke while the tool ran: the call is `interrupted`, and nobody knows what it has done."""
