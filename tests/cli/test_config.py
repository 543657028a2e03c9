"""`gateway.toml`: what it may hold, and what is said about everything else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.config import GatewayFile
from gateway.cli.exits import USAGE, UsageError

MODULE = """\
from gateway import tool

@tool
def one() -> int:
    return 1

@tool
def two() -> int:
    return 2

def plain() -> int:
    return 3

number = 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module `shop_tools`, which is also the current one."""
    (tmp_path / "shop_tools.py").write_text(MODULE, "utf-8")
    (tmp_path / "more_tools.py").write_text("from shop_tools import one\n", "utf-8")
    (tmp_path / "same_name.py").write_text(MODULE, "utf-8")
    (tmp_path / "broken_tools.py").write_text("import no_such_thing_at_all\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(folder: Path, text: str) -> str:
    (folder / "gateway.toml").write_text(text, "utf-8")
    return "gateway.toml"


def test_a_file_makes_a_gateway_of_its_settings_and_the_tools_of_its_modules(folder: Path) -> None:
    text = '[settings]\nport = 9\nallowed_hosts = ["a"]\n[tools]\nmodules = ["shop_tools", "shop_tools:plain"]\n'
    gateway = GatewayFile(written(folder, text)).gateway()
    assert [tool.name for tool in gateway.tools.all()] == ["one", "two", "plain"]
    assert (gateway.settings.port, gateway.settings.allowed_hosts) == (9, ["a"])


def test_modules_are_looked_for_beside_the_file_wherever_the_command_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, '[tools]\nmodules = ["shop_tools:one"]\n')
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    gateway = GatewayFile("../gateway.toml").gateway()
    assert [tool.name for tool in gateway.tools.all()] == ["one"]


def test_a_tool_that_two_modules_import_is_there_once(folder: Path) -> None:
    gateway = GatewayFile(written(folder, '[tools]\nmodules = ["more_tools", "shop_tools"]\n')).gateway()
    assert [tool.name for tool in gateway.tools.all()] == ["one", "two"]


def test_a_file_may_be_empty(folder: Path) -> None:
    assert GatewayFile(written(folder, "")).gateway().tools.all() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\n\n\n\n[settings]\n\nstop_grace = -1\n",
            "gateway.toml:7: settings.stop_grace: Input should be greater than or equal to 0",
        ),
        (
            "[settings]\nstop-grace = 1\n",
            "gateway.toml:2: settings.stop-grace: no such setting; did you mean stop_grace?",
        ),
        ("[settings]\nqwertz = 1\n", "gateway.toml:2: settings.qwertz: no such setting."),
        (
            '[settings]\nallowed_hosts = [\n  "a",\n  2,\n]\n',
            "gateway.toml:4: settings.allowed_hosts[1]: Input should be a valid string",
        ),
        (
            "[settings]\nport = 70000\nhosst = 1\n",
            "gateway.toml:3: settings.hosst: no such setting; did you mean host?\n"
            "gateway.toml:2: settings.port: Input should be less than or equal to 65535",
        ),
        (
            "settings.workers = 3\n",
            "gateway.toml:1: settings.workers: memory:// holds runs in one process, "
            "and 3 would each know only their own; use one worker",
        ),
        ("settings = 1\n", "gateway.toml:1: settings: must be a section: [settings]"),
        ("[setings]\n", "gateway.toml:1: setings: no such section; did you mean settings?"),
        ("[auth]\n", "gateway.toml:1: auth: not supported yet."),
        ("[tools]\nmodule = []\n", "gateway.toml:2: tools.module: no such key; did you mean modules?"),
        (
            '[tools]\nmodules = "a"\n',
            'gateway.toml:2: tools.modules: must be a list: ["module", "module:function"]',
        ),
        (
            '[tools]\nmodules = [\n"a",\n1]\n',
            'gateway.toml:4: tools.modules[1]: must be text: "module" or "module:function"',
        ),
        ("[tools]\nmodules = [\n", "gateway.toml:2: Invalid value"),
        ('a = "\n', "gateway.toml:1: Illegal character '\\n'"),
    ],
)
def test_a_fault_is_named_with_file_line_and_key(folder: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        GatewayFile(written(folder, text))
    assert caught.value.message == message
    assert caught.value.exit_code == USAGE


def test_a_value_that_the_environment_beats_is_checked_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGUI_GATEWAY_STOP_GRACE", "1")
    with pytest.raises(UsageError, match=r"gateway\.toml:1: settings\.stop_grace: "):
        GatewayFile(written(folder, "settings.stop_grace = -1"))


def test_a_fault_in_the_environment_is_not_blamed_on_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGUI_GATEWAY_PORT", "tcp://10.0.0.1:8000")
    assert GatewayFile(written(folder, "settings.stop_grace = 1")).settings == {"stop_grace": 1}


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ('"shop_tools", "nowhere"', "There is no module 'nowhere' here or installed."),
        ('"shop_tools", "shop_tools:three"', "Module 'shop_tools' has no 'three'."),
        ('"shop_tools", "shop_tools:number"', "'shop_tools:number' is neither a tool nor a function but int."),
        ('"shop_tools", "not a module"', "'not a module' is not of the form module:name."),
        ('"shop_tools", "shop_tools:"', "'shop_tools:' is not of the form module:name."),
        (
            '"shop_tools", "json"',
            "Module 'json' has no tools: functions become tools by @tool, or by naming them.",
        ),
        ('"shop_tools", "same_name"', 'there are two tools named "one".'),
    ],
)
def test_a_module_that_does_not_fit_is_named_with_its_line(folder: Path, modules: str, message: str) -> None:
    file = GatewayFile(written(folder, f"[tools]\nmodules = [{modules}]\n"))
    with pytest.raises(UsageError) as caught:
        file.gateway()
    assert caught.value.message == f"gateway.toml:2: tools.modules[1]: {message}"


def test_an_error_inside_of_a_module_keeps_its_traceback_and_says_which_line_asked_for_it(folder: Path) -> None:
    file = GatewayFile(written(folder, '[tools]\nmodules = ["broken_tools"]\n'))
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_at_all") as caught:
        file.gateway()
    assert caught.value.__notes__ == [
        "gateway.toml:2: tools.modules[0]: this happened while 'broken_tools' was imported."
    ]


def test_a_file_that_cannot_be_read_is_a_usage_error(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read nothing\.toml: No such file or directory\."):
        GatewayFile("nothing.toml")
    (folder / "gateway.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(UsageError, match=r"^gateway\.toml:2: not UTF-8\.$"):
        GatewayFile("gateway.toml")


def test_a_mark_of_utf_8_at_the_start_is_no_fault(folder: Path) -> None:
    (folder / "gateway.toml").write_bytes(b"\xef\xbb\xbf[settings]\nport = 5\n")
    assert GatewayFile("gateway.toml").settings == {"port": 5}
