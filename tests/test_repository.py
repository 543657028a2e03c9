"""What the files of the repository promise about themselves."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

import gateway

ROOT = Path(__file__).parents[1]
LOCKS = {name: (ROOT / "requirements" / f"{name}.txt").read_text("utf-8") for name in ("dev", "run", "backends")}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

# A place on the machine of whoever wrote the file. The temporary folder may be named where one is made.
MACHINE_PATH = re.compile(r"(?<![\w.}/:-])/(?:work|root|home|Users|tmp)(?:/[\w.]|(?=[\s\"'`]|$))", re.MULTILINE)
MAKES_TEMPORARY = re.compile(r"mktemp|tempfile|TMPDIR|tmpfs")
# Which mirror packages come from is a setting of the machine.
INDEX_HOST = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|yarnpkg\.com|deb\.debian\.org")
INDEX_OPTION = re.compile(r"^\s*--?(?:i|f|index-url|extra-index-url|find-links|trusted-host)\b", re.MULTILINE)


def tracked() -> list[Path]:
    """The files that are, or are about to be, under version control."""
    # safe.directory: in a container the checkout may belong to another user.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


def texts() -> dict[str, str]:
    return {str(p.relative_to(ROOT)): p.read_text("utf-8", errors="replace") for p in tracked()}


def machine_paths(text: str) -> list[str]:
    return [
        line.strip() for line in text.splitlines() if MACHINE_PATH.search(line) and not MAKES_TEMPORARY.search(line)
    ]


def unhashed(lock: str) -> list[str]:
    """The entries of a lock that are not one exact version with a hash."""
    entries = [line.strip() for line in lock.replace("\\\n", " ").splitlines()]
    pinned = re.compile(r"[a-z0-9.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}")
    return [entry for entry in entries if entry and entry[0] != "#" and not pinned.match(entry)]


def names_of(requirements: list[Any]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", r)[0] for r in requirements if isinstance(r, str)}


def pinned(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9.-]+)==", lock, re.MULTILINE))


def test_no_file_names_a_place_on_a_machine() -> None:
    found = {name: lines for name, text in texts().items() if (lines := machine_paths(text))}
    assert found == {}


def test_no_file_names_a_package_index() -> None:
    assert [name for name, text in texts().items() if INDEX_HOST.search(text)] == []
    assert [name for name, text in LOCKS.items() if INDEX_OPTION.search(text)] == []


@pytest.mark.parametrize("place", ["work/main", "root/.cache", "tmp/x", "home/me", "Users/me", "work", "root"])
def test_the_search_for_machine_paths_finds_one(place: str) -> None:
    assert machine_paths(f"cd /{place}\n") == [f"cd /{place}"]
    assert machine_paths(f'open("/{place}")\n') != []


@pytest.mark.parametrize("text", ["/runs/1", "https://host/work/x", "a/work/b", "{x}/tmp/y", "/workers", "r/root"])
def test_the_search_for_machine_paths_leaves_other_paths_alone(text: str) -> None:
    assert machine_paths(text) == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_every_entry_with_a_hash(name: str) -> None:
    assert unhashed(LOCKS[name]) == []
    assert LOCKS[name].count("==") > 20


@pytest.mark.parametrize("line", ["a==1", "a>=1 --hash=sha256:" + "0" * 64, "-f wheels", "a==1 --hash=md5:0"])
def test_an_entry_without_a_hash_is_found(line: str) -> None:
    assert unhashed(f"# a comment\n{line}\n") == [line]


def test_the_lock_has_what_the_package_the_build_and_the_tests_ask_for() -> None:
    asked = names_of(PROJECT["project"]["dependencies"]) | names_of(PROJECT["build-system"]["requires"])
    for group in PROJECT["dependency-groups"].values():
        asked |= names_of(group)
    assert asked - pinned(LOCKS["dev"]) == set()


def test_the_lock_of_the_backends_has_what_is_asked_for() -> None:
    lines = (ROOT / "requirements" / "backends.in").read_text("utf-8").splitlines()
    asked = names_of([line for line in lines if not line.startswith("#")])
    assert asked
    assert asked - pinned(LOCKS["backends"]) == set()


def test_the_npm_lock_matches_and_names_no_address_to_download_from() -> None:
    folder = ROOT / "tests" / "interop"
    wanted = json.loads((folder / "package.json").read_text("utf-8"))["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text("utf-8"))["packages"]
    assert packages[""]["dependencies"] == wanted
    for name, package in packages.items():
        assert "resolved" not in package, name
        assert name == "" or package["integrity"].startswith("sha512-"), name


def test_the_extra_all_has_every_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    others = ",".join(sorted(extras.keys() - {"all"}))
    assert extras["all"] == [f"agui-gateway[{others}]"]


def test_the_public_names_are_sorted_complete_and_documented() -> None:
    public = list(gateway.__all__)
    assert public == sorted(set(public))
    bound = {
        name
        for name, value in vars(gateway).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert bound | {"Gateway"} == set(public), "Gateway is imported when it is asked for"
    documented = [getattr(gateway, n) for n in public if callable(getattr(gateway, n))]
    assert [value for value in documented if not inspect.getdoc(value)] == []


def test_license_and_changelog_are_those_of_this_version() -> None:
    project = PROJECT["project"]
    assert gateway.__version__ == project["version"]
    assert project["version"] in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    license_text = (ROOT / "LICENSE").read_text("utf-8")
    assert license_text.startswith(f"{project['license']} License\n")
    assert project["authors"] == [{"name": "The agui-gateway authors"}]
    assert project["authors"][0]["name"] in license_text


def test_every_script_is_executable_strict_and_known_to_make() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    scripts = [p for p in sorted((ROOT / "scripts").iterdir()) if p.is_file() and not p.suffix]
    assert scripts
    for script in [*scripts, ROOT / ".ci" / "run"]:
        lines = script.read_text("utf-8").splitlines()
        assert lines[0] == "#!/usr/bin/env bash", script
        assert "set -euo pipefail" in lines, script
        assert script.stat().st_mode & 0o111, script
    for name in ("demo", "test", "check", "build"):
        assert re.search(rf"^[a-z ]*\b{name}\b[a-z ]*:", makefile, re.MULTILINE), name
