"""What the models of the backends say: there is no language model here, but everything around it is real.

A turn goes by the last thing that the person said:

- `hello`: a text in three pieces
- `recall`: all that the person has said, as far as the model was told
- `count`: a call of `count`, which the gateway brings; then what it came to
- `count at once`: the same by a model that does not stream calls
- `look`: a call of `look`, the backend's own tool, which tells of itself while it works
- `both`: the two of them at once
- `delete`: a call of `delete`, the backend's own, before which the person is asked
- `remove`: a call of `remove`, the gateway's, before which the person is asked
- `count and measure`: a call of `count` and one of `measure`, of two gateways
- `wait`: a word, and then nothing more
- `fail`: a word, and then an exception
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from watched import note

CALLS = {
    "count": [("count", {"to": 2})],
    "count at once": [("count", {"to": 2})],
    "look": [("look", {})],
    "both": [("look", {}), ("count", {"to": 2})],
    "delete": [("delete", {"path": "/a"})],
    "remove": [("remove", {"path": "/a"})],
    "count and measure": [("count", {"to": 2}), ("measure", {"what": "the room"})],
}


@dataclass
class Turn:
    """What the model says next: pieces of text, then calls (tool, arguments), each `whole` or in pieces, too.

    After the text it `waits` for ever, or `fails`.
    """

    text: Sequence[str] = ()
    calls: Sequence[tuple[str, dict[str, object]]] = ()
    whole: bool = False
    waits: bool = False
    fails: bool = False

    async def pieces(self) -> AsyncIterator[str]:
        """The text; notes `closed` when whoever listens goes while it waits."""
        for piece in self.text:
            yield piece
        if self.waits:
            try:
                await asyncio.Event().wait()
            finally:
                note("closed")
        if self.fails:
            raise RuntimeError("The model is gone.")


def next_turn(said: Sequence[str], results: Sequence[str]) -> Turn:
    """`said` by the person in all, oldest first; `results` of the calls made since the last of it."""
    asked = said[-1]
    if asked == "recall":
        return Turn([" / ".join(said)])
    if asked == "wait":
        return Turn(["Well"], waits=True)
    if asked == "fail":
        return Turn(["Well"], fails=True)
    if asked not in CALLS:
        return Turn(["Hel", "lo ", "there."])
    if results:
        return Turn(["It says ", " and ".join(results)])
    return Turn(calls=CALLS[asked], whole=asked == "count at once")
