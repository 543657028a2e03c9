"""Which folders may be read, which files are listed, and their hashes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import AbortError, AbortSignal, ToolError
from gateway.demo import folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the gateway, with a folder beside it."""
    (tmp_path / "work" / "inside").mkdir(parents=True)
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_no_path_means_the_package(here: Path) -> None:
    assert folder.allowed("") == folder.PACKAGE
    assert (folder.PACKAGE / "demo" / "folder.py").is_file()


def test_a_folder_below_the_working_directory_is_allowed(here: Path) -> None:
    assert folder.allowed("inside") == (here / "inside").resolve()
    assert folder.allowed(".") == here.resolve()


@pytest.mark.parametrize("path", ["..", "../beside", "inside/../../beside", "/", "link"])
def test_a_folder_elsewhere_is_refused_also_through_a_link(here: Path, path: str) -> None:
    (here / "link").symlink_to(here.parent / "beside")
    with pytest.raises(ToolError, match="outside of what this tool may read") as caught:
        folder.allowed(path)
    assert caught.value.code == "outside_root"


@given(st.text(max_size=40))
def test_any_text_is_an_allowed_folder_or_a_tool_error(path: str) -> None:
    try:
        found = folder.allowed(path)
    except ToolError:
        return
    assert found.is_dir()


def test_hidden_folders_caches_and_links_are_left_out(tmp_path: Path) -> None:
    for name in ["b.txt", "a/c.txt", ".git/config", "a/__pycache__/x.pyc"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    assert folder.files_in(tmp_path, 10, AbortSignal()) == ["a/c.txt", "b.txt"]


def test_more_files_than_asked_for_are_refused(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    with pytest.raises(ToolError) as caught:
        folder.files_in(tmp_path, 2, AbortSignal())
    assert caught.value.code == "too_many_files"


@pytest.mark.parametrize("size", [0, 1, folder.CHUNK_BYTES, folder.CHUNK_BYTES + 1])
def test_the_hash_is_that_of_the_whole_file(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    expected = hashlib.sha256(b"x" * size).hexdigest()
    assert folder.sha256_of(tmp_path / "file", AbortSignal()) == (expected, size)


def test_an_abort_ends_the_listing_and_the_hash(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    stopped = AbortSignal("user")
    with pytest.raises(AbortError):
        folder.files_in(tmp_path, 10, stopped)
    with pytest.raises(AbortError):
        folder.sha256_of(tmp_path / "file", stopped)
