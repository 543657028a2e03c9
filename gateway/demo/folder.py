"""A folder tree: which one may be read, what is in it, the hash of a file. Blocking: call it in a thread."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from gateway import AbortSignal, ToolError

PACKAGE = Path(__file__).resolve().parents[1]

# Large enough that the hash dominates, small enough that Stop is seen at once on a slow disk.
CHUNK_BYTES = 256 * 1024


def allowed(path: str) -> Path:
    """The folder that `path` names: below the working directory or the package, else `ToolError`."""
    here = Path.cwd().resolve()
    try:
        folder = here.joinpath(path).resolve() if path else PACKAGE
        is_folder = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in it, a loop of links, a name too long
        raise ToolError("invalid_path", f"{path!r} is not a usable path: {error}") from error
    # Links are resolved before the check, so that a link cannot lead out of it.
    if not any(folder.is_relative_to(root) for root in (here, PACKAGE)):
        raise ToolError(
            "outside_root",
            f"{path!r} is outside of what this tool may read: the working directory and the gateway's package.",
        )
    if not is_folder:
        raise ToolError("not_a_folder", f"{path!r} is not a folder.")
    return folder


def files_in(folder: Path, max_files: int, signal: AbortSignal) -> list[str]:
    """The POSIX paths below `folder`, sorted, without hidden folders, caches and links.

    `ToolError` beyond `max_files`, `AbortError` once the signal is aborted.
    """
    found: list[str] = []
    for name in _walk(folder):
        signal.throw_if_aborted()
        if len(found) >= max_files:
            raise ToolError(
                "too_many_files",
                f"There are more than {max_files} files: choose a smaller folder or raise max_files.",
            )
        found.append(name)
    return sorted(found)


def sha256_of(file: Path, signal: AbortSignal) -> tuple[str, int]:
    """The hex digest and the size in bytes; `AbortError` between two chunks once the signal is aborted."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            signal.throw_if_aborted()
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in names:
            file = Path(parent, name)
            if file.is_file() and not file.is_symlink():
                yield file.relative_to(folder).as_posix()
