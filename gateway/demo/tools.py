"""Tools that do real work on real input and are good to watch; each runs with one click.

They use the public API only, so that they also serve as examples: an async function (`hash_folder`,
`import_csv`, `download`), a CPU-bound one in a process of its own (`count_words`), a plain one in a thread
(`write_log`).
"""

import asyncio
import hashlib
import re
import ssl
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import Field

from gateway import ToolContext, ToolError, tool
from gateway.demo import folder, table
from gateway.demo.loopback import FileServer
from gateway.demo.samples import ALICE, ORDERS

MEGABYTE = 1_000_000
LINE_SECONDS = 0.1
WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")

Pause = Annotated[int, Field(ge=0, le=2000, description="Pause after each step, in milliseconds.")]


@tool(timeout=600, annotations={"read_only": True})
async def hash_folder(
    ctx: ToolContext,
    path: Annotated[
        str,
        Field(
            max_length=200,
            description="Folder below the working directory; empty: the gateway's own package.",
        ),
    ] = "",
    max_files: Annotated[int, Field(ge=1, le=100_000, description="Refuse a folder with more files.")] = 2000,
    delay_ms: Pause = 60,
) -> dict[str, Any] | str:
    """Hash every file of a folder tree with SHA-256.

    Emits `demo.file {path, bytes, sha256}` a file and `demo.skipped {path, reason}` for one that cannot be
    read. The `digest` of the result is the SHA-256 of the lines `<sha256>  <path>` in the order of the paths.
    Hidden folders, caches and links are left out. `ToolError` for a folder outside of the allowed ones. You can move
    it to the background.
    """
    root = await asyncio.to_thread(folder.allowed, path)
    return await ctx.run_detachable(_hash(ctx, root, max_files, delay_ms))


async def _hash(ctx: ToolContext, root: Path, max_files: int, delay_ms: int) -> dict[str, Any]:
    signal = ctx.abort_signal
    names = await asyncio.to_thread(folder.files_in, root, max_files, signal)
    listing, total_bytes, skipped = hashlib.sha256(), 0, 0
    for done, name in enumerate(names, 1):
        signal.throw_if_aborted()
        try:
            # In a thread: a read may take as long as the disk likes, and the loop has others to serve.
            digest, size = await asyncio.to_thread(folder.sha256_of, root / name, signal)
        except OSError as error:
            skipped += 1
            ctx.emit_custom_event("demo.skipped", {"path": name, "reason": error.strerror})
        else:
            total_bytes += size
            listing.update(f"{digest}  {name}\n".encode("utf-8", "surrogateescape"))
            ctx.emit_custom_event("demo.file", {"path": name, "bytes": size, "sha256": digest})
        ctx.report_progress(done, len(names), name)
        await ctx.flush()
        await asyncio.sleep(delay_ms / 1000)
    return {
        "files": len(names) - skipped,
        "skipped": skipped,
        "bytes": total_bytes,
        "digest": listing.hexdigest(),
    }


@tool(isolation="process", timeout=600, annotations={"read_only": True, "idempotent": True})
def count_words(
    ctx: ToolContext,
    text: Annotated[
        str,
        Field(max_length=200_000, description="The text to count.", json_schema_extra={"format": "textarea"}),
    ] = ALICE,
    top: Annotated[int, Field(ge=1, le=100, description="How many of the most frequent to return.")] = 10,
    phrase: Annotated[int, Field(ge=1, le=5, description="Words in a row that count as one.")] = 1,
    rounds: Annotated[
        int, Field(ge=1, le=1_000_000, description="Count it this many times over, to keep a core busy.")
    ] = 40_000,
) -> dict[str, Any]:
    """Count the words of a text, CPU-bound, in a process of its own that Stop can kill.

    Emits `demo.words {round, distinct, top}` ten times on the way. `ToolError` for a text with too few words.
    """
    counts: Counter[str] = Counter()
    for done in range(1, rounds + 1):
        ctx.abort_signal.throw_if_aborted()
        counts = _phrases(text, phrase)
        if done % max(1, rounds // 10) == 0:
            ctx.emit_custom_event(
                "demo.words", {"round": done, "distinct": len(counts), "top": dict(counts.most_common(3))}
            )
        if done % max(1, rounds // 200) == 0:
            ctx.report_progress(done, rounds, f"round {done:,} of {rounds:,}")
    return {
        "words": len(WORD.findall(text)),
        "distinct": len(counts),
        "top": [{"phrase": found, "count": count} for found, count in counts.most_common(top)],
    }


def _phrases(text: str, length: int) -> Counter[str]:
    words = WORD.findall(text.casefold())
    if len(words) < length:
        raise ToolError("too_short", f"The text has {len(words)} words, {length} are needed.")
    return Counter(" ".join(words[start : start + length]) for start in range(len(words) - length + 1))


@tool(timeout=600)
async def import_csv(
    ctx: ToolContext,
    csv: Annotated[
        str,
        Field(
            max_length=200_000,
            description="Comma, semicolon or tab separated text; the first line names the columns.",
            json_schema_extra={"format": "textarea"},
        ),
    ] = ORDERS,
    delay_ms: Pause = 50,
) -> dict[str, Any] | str:
    """Import the rows of a pasted CSV into a database in memory and describe its columns.

    A column whose values are mostly numbers takes numbers only. Emits `import.row {row, line}` for a row that
    fits and `import.error {line, message}` for one that does not. `ToolError` for text without rows. You can move it
    to the background.
    """
    data = await asyncio.to_thread(table.read_table, csv)
    return await ctx.run_detachable(_import(ctx, data, delay_ms))


async def _import(ctx: ToolContext, data: table.Table, delay_ms: int) -> dict[str, Any]:
    rows: list[dict[str, table.Value]] = []
    for done, (line, fields) in enumerate(data.lines, 1):
        ctx.abort_signal.throw_if_aborted()
        try:
            row = data.row(fields)
        except table.RowError as error:
            ctx.emit_custom_event("import.error", {"line": line, "message": str(error)})
        else:
            rows.append(row)
            ctx.emit_custom_event("import.row", {"row": row, "line": line})
        ctx.report_progress(done, len(data.lines), f"row {done} of {len(data.lines)}")
        await ctx.flush()
        await asyncio.sleep(delay_ms / 1000)
    return {
        "imported": len(rows),
        "rejected": len(data.lines) - len(rows),
        "columns": await asyncio.to_thread(table.statistics, data.columns, rows),
    }


@tool(timeout=600, annotations={"read_only": True})
async def download(
    ctx: ToolContext,
    size_mb: Annotated[int, Field(ge=1, le=2000, description="Size of the file in megabytes.")] = 20,
    mb_per_s: Annotated[int, Field(ge=1, le=1000, description="Read at most this many megabytes a second.")] = 4,
) -> dict[str, Any]:
    """Download a file over a real connection, from a loopback server that lives for this call only.

    Emits `demo.connected {url, bytes}` and `demo.received {bytes, seconds}` a megabyte. Progress counts bytes.
    Stop closes the socket.
    """
    size, received, digest = size_mb * MEGABYTE, 0, hashlib.sha256()
    started = time.monotonic()
    # trust_env: a proxy in the environment must not see a request for the loopback address. verify: plain HTTP needs
    # no certificates, and reading the system's would hold up the loop.
    async with (
        FileServer(size) as server,
        httpx.AsyncClient(trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as client,
        client.stream("GET", server.url) as response,
    ):
        ctx.emit_custom_event("demo.connected", {"url": server.url, "bytes": size})
        async for chunk in response.aiter_raw():
            digest.update(chunk)
            whole = received // MEGABYTE
            received += len(chunk)
            ctx.report_progress(received, size, f"{received / MEGABYTE:.1f} of {size_mb} MB")
            if received // MEGABYTE > whole:
                seconds = round(time.monotonic() - started, 3)
                ctx.emit_custom_event("demo.received", {"bytes": received, "seconds": seconds})
            # Reading slowly is enough: the server writes only what is read.
            await asyncio.sleep(max(0.0, started + received / (mb_per_s * MEGABYTE) - time.monotonic()))
    return {
        "bytes": received,
        "seconds": round(time.monotonic() - started, 3),
        "sha256": digest.hexdigest(),
        "matches": digest.hexdigest() == server.sha256,
    }


@tool(timeout=0)
def write_log(
    ctx: ToolContext,
    seconds: Annotated[int, Field(ge=1, le=3600, description="How long to write, in seconds.")] = 30,
    path: Annotated[
        str,
        Field(max_length=200, description="A .log file in the folder for temporary files; empty: a new one."),
    ] = "",
) -> dict[str, Any]:
    """Append a line to a file ten times a second, from a thread that looks at the abort signal.

    Emits `demo.log_file {path}` first, so that anybody can watch the file (`tail -f`) and see that Stop ends
    its growth, then `demo.line {line}` once a second. `ToolError` for a path elsewhere.
    """
    file, lines, total = log_file(path), 0, round(seconds / LINE_SECONDS)
    ctx.emit_custom_event("demo.log_file", {"path": str(file)})
    with file.open("a", encoding="utf-8", buffering=1) as log:
        for lines in range(1, total + 1):
            ctx.abort_signal.throw_if_aborted()
            line = f"{time.strftime('%H:%M:%S')} line {lines} of {total}, run {ctx.run_id}"
            log.write(line + "\n")
            if lines % 10 == 1:
                ctx.emit_custom_event("demo.line", {"line": line})
            ctx.report_progress(lines, total, f"line {lines} of {total}")
            time.sleep(LINE_SECONDS)
    return {"path": str(file), "lines": lines}


def log_file(path: str) -> Path:
    """A .log file in the folder for temporary files; empty: a new one. `ToolError` for a path elsewhere."""
    home = Path(tempfile.gettempdir()).resolve()
    if not path:
        with tempfile.NamedTemporaryFile(prefix="agui-gateway-", suffix=".log", delete=False) as created:
            return Path(created.name)
    try:
        file = home.joinpath(path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError("invalid_path", f"{path!r} is not a usable path: {error}") from error
    if file.suffix != ".log" or not file.is_relative_to(home) or not file.parent.is_dir():
        raise ToolError("invalid_path", f"{path!r} is not a .log file in an existing folder below {home}.")
    return file
