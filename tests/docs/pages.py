"""The Markdown pages: their code blocks, links, headings and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "Page", "page"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s\"]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced code block. `language` is empty for plain text."""

    page: str
    language: str
    text: str
    line: int

    @property
    def file_name(self) -> str | None:
        """What its first line says: `# app.py`, `<!-- index.html -->`."""
        found = re.match(r"(?:# |<!-- )([\w.]+\.(?:py|toml|html))(?: -->)?\n", self.text)
        return found and found[1]

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block without their comments; one that ends with a backslash goes on in the next."""
        text = re.sub(r" \\\n\s*", " ", self.text)
        lines = (re.sub(r"\s{2,}# .*$", "", line) for line in text.splitlines())
        return [line for line in lines if line]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Page:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text("utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return [
            Block(self.name, found[1], found[2], self.text.count("\n", 0, found.start()) + 1)
            for found in _FENCE.finditer(self.text)
        ]

    def block(self, language: str, containing: str = "") -> Block:
        """The only block of this language with this text in it."""
        (found,) = (block for block in self.blocks if block.language == language and containing in block.text)
        return found

    def of(self, language: str) -> list[Block]:
        return [block for block in self.blocks if block.language == language]

    def files(self) -> dict[str, str]:
        """The files that its blocks say how to write."""
        return {block.file_name: block.text for block in self.blocks if block.file_name}

    def after(self, block: Block) -> Block:
        """The block that follows."""
        return self.blocks[self.blocks.index(block) + 1]

    @cached_property
    def prose(self) -> str:
        """The text without its code blocks."""
        return _FENCE.sub("", self.text)

    @property
    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """As GitHub makes them of headings."""
        titles = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    @property
    def codes(self) -> list[str]:
        """What stands between backticks in the prose."""
        return _CODE.findall(self.prose)

    def table(self, first: str) -> list[list[str]]:
        """The rows of the table whose first heading is `first`, cell by cell."""
        lines = self.prose.splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
        rows = []
        for line in lines[start + 2 :]:
            if not line.startswith("|"):
                break
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        return rows


PAGES = [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]


def page(name: str) -> Page:
    """The page of this name, from the root of the repository."""
    return next(found for found in PAGES if found.name == name)
