"""A Lua script as a command."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1

__all__ = ["FIELDS", "SOURCES", "Argument", "Command", "Script"]

Argument = bytes | str | int
Command = tuple[Argument, ...]

#: What a record is read from, in this order.
FIELDS = ("record", "messages", "result", "last", "stop", "gone", "worker", "epoch")

SOURCES: dict[str, str] = {}

PRELUDE = f"""
local function now()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local function ms(seconds) return string.format('%d', math.max(math.floor(seconds * 1000), 1000)) end
local function get(...) return unpack(redis.call('HMGET', KEYS[1], ...)) end
local function fields() return redis.call('HMGET', KEYS[1], {", ".join(f"'{field}'" for field in FIELDS)}) end
"""


class Script:
    """A Lua script; called with its keys and arguments it gives the command that runs it."""

    def __init__(self, source: str) -> None:
        self.sha = sha1((PRELUDE + source).encode(), usedforsecurity=False).hexdigest()
        SOURCES[self.sha] = PRELUDE + source

    def __call__(self, keys: Sequence[bytes], *arguments: Argument) -> Command:
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)
