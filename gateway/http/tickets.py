"""Tickets: secrets in a URL, for `EventSource`, which can send no headers, and for sharing a run.

A `follow` ticket must be used within a minute, and from then on continues one stream: it is accepted again only by
somebody who knows an event id that it was sent. A `share` ticket reads for as long as the run is kept. Both read one
run and do nothing else; only a digest of them is stored, and they are taken out of the request before anybody logs it.
Source: contract 8.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from time import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from gateway.errors import NotFound
from gateway.http.stream import ViewerResponse
from gateway.run.records import RunRecord, iso
from gateway.stores.base import Store, Ticket

__all__ = ["FIRST_USE_SECONDS", "TICKET", "Tickets", "opens_with_ticket", "take_ticket"]

FIRST_USE_SECONDS = 60.0
TICKET = "gateway.ticket"

_READS = re.compile(r"/runs/[^/]+(/events)?")


def take_ticket(scope: Scope) -> None:
    """Moves `?ticket=` out of the query: a server's access log is written from the scope, and must not have it."""
    if b"ticket=" not in scope["query_string"]:
        return
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    given = [value for name, value in pairs if name == "ticket"]
    if given:
        scope[TICKET] = given[0]
        scope["query_string"] = urlencode([pair for pair in pairs if pair[0] != "ticket"]).encode("latin-1")


def opens_with_ticket(scope: Scope, path: str) -> bool:
    """Whether a ticket stands in for credentials on this path: it reads runs, nothing else."""
    return TICKET in scope and scope["method"] in ("GET", "HEAD") and _READS.fullmatch(path) is not None


class Tickets:
    """Issues and checks tickets."""

    def __init__(self, store: Store, run_ttl: float, clock: Callable[[], float] = time) -> None:
        self._store = store
        self._run_ttl = run_ttl
        self._clock = clock
        self._streams: dict[str, ViewerResponse] = {}

    async def issue(self, record: RunRecord, use: str) -> dict[str, Any]:
        """`{"ticket", "expiresAt"}`; a share ticket of a run that is still at work has no time yet: null."""
        token = secrets.token_urlsafe(24)
        expires_at: float | None = self._clock() + FIRST_USE_SECONDS
        if use == "share":
            expires_at = None if record.ended_at is None else record.ended_at + self._run_ttl
        await self._store.put_ticket(Ticket(_digest(token), record.key, use, expires_at))
        return {"ticket": token, "expiresAt": None if expires_at is None else iso(expires_at)}

    async def run_of(self, token: str, run_id: str, *, share_only: bool) -> tuple[Ticket, RunRecord]:
        """The ticket and its run; the same `NotFound` for every ticket that does not open this run now."""
        ticket = await self._store.ticket(_digest(token))
        record = None if ticket is None else await self._store.get(ticket.key)
        if ticket is None or record is None or record.key.run_id != run_id:
            raise _unknown()
        if share_only and ticket.use != "share":
            raise _unknown()
        return ticket, record

    async def use(self, ticket: Ticket, cursor: int) -> Ticket:
        """Marks a follow ticket as used by a stream that continues after `cursor`; `NotFound` when it may not."""
        if ticket.use == "share":
            return ticket
        stream = self._streams.get(ticket.digest)
        if ticket.first_used_at is None:
            allowed = ticket.expires_at is not None and self._clock() <= ticket.expires_at
        else:
            sent = ticket.last_event_id or 0 if stream is None else stream.follower.cursor
            allowed = 0 < cursor <= sent or (cursor == 0 and sent == 0)
        used = replace(ticket, first_used_at=ticket.first_used_at or self._clock())
        if not allowed or not await self._store.replace_ticket(ticket, used):
            raise _unknown()
        if stream is not None:
            # One at a time: whoever comes back on another connection has lost this one, dead or not.
            stream.cut("ticket")
        return used

    def bind(self, ticket: Ticket, stream: ViewerResponse) -> None:
        """Remembers the stream of a follow ticket, and what it was sent once it has ended."""
        if ticket.use != "share":
            self._streams[ticket.digest] = stream
            stream.on_end = lambda: self._ended(ticket, stream)

    async def _ended(self, ticket: Ticket, stream: ViewerResponse) -> None:
        if self._streams.get(ticket.digest) is stream:
            del self._streams[ticket.digest]
        current = await self._store.ticket(ticket.digest)
        if current is not None and (current.last_event_id or 0) < stream.follower.cursor:
            await self._store.replace_ticket(current, replace(current, last_event_id=stream.follower.cursor))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _unknown() -> NotFound:
    return NotFound("No such run.", code="run_not_found")
