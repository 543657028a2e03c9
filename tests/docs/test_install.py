"""What `make demo` installs on a fresh machine: the package and what it needs to run, by the pins of the full lock."""

from __future__ import annotations

import re
import subprocess

from tests.docs.pages import ROOT
from tests.test_repository import PROJECT, names_of, unhashed


def pins(name: str) -> dict[str, str]:
    """Each pinned package with its version and hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    assert unhashed(text) == []
    entries = re.findall(
        r"^([a-z0-9.-]+)(==(?:.*\\\n)+.*)$", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE), re.MULTILINE
    )
    return dict(entries)


def test_the_small_lock_is_a_part_of_the_full_one_and_has_what_the_package_needs() -> None:
    small, full = pins("run"), pins("dev")
    assert len(small) < len(full) / 2
    assert {name for name, pin in small.items() if full.get(name) != pin} == set()
    needed = names_of(PROJECT["project"]["dependencies"]) | names_of(PROJECT["build-system"]["requires"])
    assert needed - small.keys() == set()
    tests = {name for name in names_of(PROJECT["dependency-groups"]["test"]) if name.startswith("pytest")}
    assert tests
    assert tests & small.keys() == set()


def test_the_demo_installs_by_the_small_lock_and_everything_else_by_the_full_one() -> None:
    assert 'scripts/install" --run\n' in (ROOT / "scripts" / "demo").read_text("utf-8")
    wrong = subprocess.run([ROOT / "scripts" / "install", "--all"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "usage: scripts/install [--run]\n")
