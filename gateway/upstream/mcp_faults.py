"""What went wrong with an MCP server: the library's exceptions, which come in groups or as cancellations, made ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
from mcp import MCPError, types

from gateway.errors import GatewayError, ToolError
from gateway.execution.servers import ServerDown, ServerLost
from gateway.upstream.mcp_lines import TOO_LARGE
from gateway.wire.sse import MAX_MESSAGE_BYTES

__all__ = ["NO_PROTOCOL", "Refused", "fault_of", "reason_of", "too_large"]

NO_PROTOCOL = "The server's answer is not one of the protocol."

# Before anything of a request was sent.
_UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_LOST = (httpx2.TransportError, asyncio.CancelledError, EOFError, OSError, TimeoutError)


class Refused(Exception):
    """The server, or what is in front of it, answers with a status that says: not now, or not you."""


def fault_of(error: BaseException | None, *, opened: bool) -> Exception:
    """What a call ends in whose request ended in this, without an answer; `opened`: it had got as far as the tool.

    `ServerDown`, `ServerLost`, or an error of the tool's, none of which says what only the log shall: see `reason_of`.
    """
    leaves = list(_leaves(error))
    if not opened or any(isinstance(leaf, (*_UNREACHED, Refused, ServerDown)) for leaf in leaves):
        return ServerDown(reason_of(error))
    for leaf in leaves:
        if isinstance(leaf, MCPError) and leaf.code != types.CONNECTION_CLOSED:
            return _refusal(leaf)
        if isinstance(leaf, GatewayError):
            return leaf
    if not leaves or any(isinstance(leaf, (*_LOST, MCPError)) for leaf in leaves):
        return ServerLost(reason_of(error))
    return ToolError("failed", NO_PROTOCOL)


def _refusal(error: MCPError) -> ToolError:
    """Of the call alone, mostly in the server's own words."""
    if error.code == TOO_LARGE:
        return too_large()
    # The library's words go into the log: it has no others under these codes, and what it sends is well-formed.
    foreign = error.code in (types.PARSE_ERROR, types.INVALID_REQUEST)
    return ToolError("failed", NO_PROTOCOL if foreign else error.message)


def too_large() -> ToolError:
    """Of an answer that is not read to its end."""
    return ToolError("too_large", f"The server's answer is larger than {MAX_MESSAGE_BYTES} bytes.")


def reason_of(error: BaseException | None) -> str:
    """One line for the log."""
    leaves = list(_leaves(error)) or [asyncio.CancelledError("the connection ended")]
    leaf = next((leaf for leaf in leaves if not isinstance(leaf, asyncio.CancelledError)), leaves[0])
    text = str(leaf).partition("\n")[0]
    return f"{type(leaf).__name__}: {text}" if text else type(leaf).__name__


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    """What is in groups, with what was at work when a group was raised."""
    if error is None:
        return
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
    if isinstance(error.__context__, (BaseExceptionGroup, MCPError)):
        yield from _leaves(error.__context__)
