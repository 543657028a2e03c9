"""Tools that need a person: one asks while it runs, one ends its run with its questions, one waits for a yes."""

import asyncio
import random
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gateway import ToolContext, ToolError, tool
from gateway.demo.tools import log_file

DAYS = {"type": "integer", "title": "Days", "minimum": 1, "maximum": 14, "default": 3}


class Guess(BaseModel):
    """What the person answers."""

    guess: Annotated[int, Field(ge=1, le=1000, title="Your guess")]


@tool(timeout=60)
async def guess_number(
    ctx: ToolContext,
    highest: Annotated[int, Field(ge=2, le=1000, description="The number is between 1 and this.")] = 20,
) -> dict[str, Any]:
    """Think of a number and let you guess it: every guess is a question inside the open run.

    Emits `demo.guess {guess, hint}` a guess. While it waits for you no time limit counts, and Stop ends it.
    """
    number, hint = random.randint(1, highest), f"I think of a number between 1 and {highest}."  # noqa: S311 - a game
    for tries in range(1, highest + 1):
        answer = await ctx.request_input(hint, Guess)
        if not answer.resolved:
            return {"guessed": False, "number": number, "tries": tries - 1}
        guess = answer.payload["guess"]
        if guess == number:
            return {"guessed": True, "number": number, "tries": tries}
        hint = f"{guess} is too {'low' if guess < number else 'high'}."
        ctx.emit_custom_event("demo.guess", {"guess": guess, "hint": hint})
    return {"guessed": False, "number": number, "tries": highest}


@tool
async def plan_trip(
    ctx: ToolContext,
    place: Annotated[str, Field(min_length=1, max_length=100, description="Where to go.")] = "Rome",
) -> dict[str, Any]:
    """Plan a trip: ends its run with a question, twice, and goes on when you have answered, even days later.

    It is run again from its start each time; what you have answered before is kept.
    """
    days = ctx.interrupt(f"How many days in {place}?", DAYS, key="days")
    if not days.resolved:
        return {"planned": False}
    plan = [f"Day {day}: {'arrive in' if day == 1 else 'see more of'} {place}" for day in range(1, days.payload + 1)]
    text = "\n".join(plan)
    agreed = ctx.interrupt(f"Is this all right?\n{text}", {"type": "boolean", "title": "Yes"}, key="agreed")
    return {"planned": bool(agreed.resolved and agreed.payload), "plan": plan}


@tool(needs_approval=True, annotations={"destructive": True})
async def delete_log(
    path: Annotated[str, Field(max_length=200, description="A .log file that write_log has written.")] = "",
) -> dict[str, Any]:
    """Delete a log file of `write_log`, once you have approved it. You may change the path while you do.

    `ToolError` for a path elsewhere, or without a file.
    """
    return await asyncio.to_thread(_delete, path)


def _delete(path: str) -> dict[str, Any]:
    if not path:
        raise ToolError("invalid_path", "Say which file: write_log has it in its result.")
    file: Path = log_file(path)
    try:
        size = file.stat().st_size
        file.unlink()
    except OSError as error:
        raise ToolError("invalid_path", f"{path!r} cannot be deleted: {error.strerror}") from error
    return {"deleted": str(file), "bytes": size}
