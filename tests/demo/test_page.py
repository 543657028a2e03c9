"""The page's files: nothing inline, nothing from elsewhere, no data as HTML; and its pure modules, in Node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "web-demo"
MODULES = sorted(PAGE.glob("*.js"))


class Tags(HTMLParser):
    """Every start tag of the page with its attributes, and what stands inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.inline += data.strip()


def page() -> Tags:
    tags = Tags()
    tags.feed((PAGE / "index.html").read_text("utf-8"))
    return tags


def test_the_page_has_nothing_inline() -> None:
    tags = page()
    names = [name for _, attributes in tags.tags for name in attributes]
    assert tags.inline == ""
    assert "style" not in [tag for tag, _ in tags.tags]
    assert not [name for name in names if name == "style" or name.startswith("on")]


def test_everything_it_loads_lies_beside_it() -> None:
    loaded = [a.get("src") or a.get("href") for tag, a in page().tags if tag in ("script", "link", "img")]
    for module in MODULES:
        loaded += re.findall(r'\bfrom "\./([^"]+)"', module.read_text("utf-8"))
    assert len(loaded) > len(MODULES)
    assert [name for name in loaded if not name or not (PAGE / name).is_file()] == []


@pytest.mark.parametrize("path", [*MODULES, PAGE / "index.html", PAGE / "style.css"], ids=lambda path: path.name)
def test_no_address_is_absolute_and_no_data_becomes_html(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"\bhttps?://|\b(src|href)=.?/|(address|fetch|EventSource)\(.?/|@import|\burl\(", text)
    assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function)\b", text)


def test_every_label_and_description_names_something_on_the_page() -> None:
    tags = page().tags
    ids = {attributes.get("id") for _, attributes in tags}
    named = [attributes.get(name) for _, attributes in tags for name in ("aria-labelledby", "for")]
    assert [name for name in named if name and name not in ids] == []


def test_the_pure_modules_do_what_they_say(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node")
    for file in [*MODULES, Path(__file__).with_name("page.test.js")]:
        shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    ended = subprocess.run([node, "--test"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^# pass [1-9]", ended.stdout, re.MULTILINE)
