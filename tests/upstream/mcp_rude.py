"""An MCP server over stdio, of the protocol of 2025, that does what none should: `python -m tests.upstream.mcp_rude`.

It goes on with calls that were cancelled, and asks for them while others are made; it lists what are no tools; it says
more than anybody can take.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

NAMES = ("forget", "late", "hold", "ask", "big", "pid", "stutter")
LATE = 0.4  # seconds: long after a call was stopped
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS: list[Any] = [
    {"name": "wrong", "inputSchema": {"type": "string"}},
    {"name": "bare"},
    {"name": 5, "inputSchema": {"type": "object"}},
    "no tool",
    *({"name": name, "inputSchema": {"type": "object"}} for name in NAMES),
]

late: dict[Any, Any] = {}
asking: dict[str, Any] = {}
held: list[Any] = []


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(**fields: Any) -> None:
    say(json.dumps({"jsonrpc": "2.0", **fields}))


def result(request_id: Any, text: str) -> None:
    tell(id=request_id, result={"content": [{"type": "text", "text": text}]})


def progress(token: Any, message: str) -> None:
    tell(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": message})


def question(request_id: Any, message: str) -> None:
    asking[f"q{request_id}"] = request_id
    params = {"message": message, "requestedSchema": FORM}
    tell(id=f"q{request_id}", method="elicitation/create", params=params)


def forget(request_id: Any, token: Any, arguments: Any) -> None:
    """Is never answered."""
    progress(token, "begun")


def wait(request_id: Any, token: Any, arguments: Any) -> None:
    """Asks when `hold` is called."""
    late[request_id] = token
    progress(token, "begun")


def hold(request_id: Any, token: Any, arguments: Any) -> None:
    """Ends when the late ones are answered, and says with what."""
    time.sleep(LATE)
    held.append(request_id)
    for other, its_token in late.items():
        progress(its_token, "late")
        question(other, "Your password?")


def ask(request_id: Any, token: Any, arguments: Any) -> None:
    question(request_id, "Who are you?")


def big(request_id: Any, token: Any, arguments: Any) -> None:
    """One line of so many bytes, as the servers of several makers have it, or as nobody does."""
    answer = json.dumps({"content": [{"type": "text", "text": "x" * arguments["bytes"]}]})
    say(
        {
            "first": f'{{"jsonrpc":"2.0","id":{request_id},"result":{answer}}}',
            "last": f'{{"result":{answer},"jsonrpc":"2.0","id":{request_id}}}',
            "turned": f'{{"result":{answer},"id":{request_id},"jsonrpc":"2.0"}}',
            "nowhere": f'{{"jsonrpc":"2.0","result":{answer},"id":{request_id},"more":{answer}}}',
        }[arguments["id"]]
    )


def pid(request_id: Any, token: Any, arguments: Any) -> None:
    result(request_id, str(os.getpid()))


def stutter(request_id: Any, token: Any, arguments: Any) -> None:
    """Writes what is no text."""
    sys.stdout.buffer.write(b"\xff\xfe\n")
    result(request_id, "stuttered")


CALLS: dict[str, Callable[[Any, Any, Any], None]] = {
    **{"forget": forget, "late": wait, "hold": hold, "ask": ask, "big": big, "pid": pid, "stutter": stutter}
}


def answered(request_id: str, answer: Any) -> None:
    asker = asking.pop(request_id)
    result(asker, f"heard {json.dumps(answer)}")
    late.pop(asker, None)
    for waiting in held if not late else ():
        result(waiting, f"the late one heard {json.dumps(answer)}")


def hear(message: dict[str, Any]) -> None:
    request_id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method is None:
        answered(message["id"], message.get("result", {"error": message.get("error")}))
    elif method == "initialize":
        info = {"name": "rude", "version": "1"}
        tell(id=request_id, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        tell(id=request_id, result={"tools": TOOLS})
    elif method == "tools/call":
        CALLS[params["name"]](request_id, params["_meta"]["progressToken"], params.get("arguments"))
    elif request_id is not None:
        tell(id=request_id, error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    for line in sys.stdin:
        hear(json.loads(line))
