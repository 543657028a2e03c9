"""One precedence for every setting, and values that no gateway could work with are refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from gateway import Gateway, Settings
from gateway.settings import FILE

LAYERS = ("flag", "constructor", "environment", "file")
VALUES = {"flag": 1.0, "constructor": 2.0, "environment": 3.0, "file": 4.0}
DEFAULT = 5.0


@pytest.mark.parametrize(
    "given", [given for count in range(5) for given in itertools.combinations(LAYERS, count)], ids="-".join
)
def test_a_flag_beats_a_constructor_argument_beats_the_environment_beats_a_file_beats_the_default(
    given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "environment" in given:
        monkeypatch.setenv("AGUI_GATEWAY_STOP_GRACE", str(VALUES["environment"]))
    gateway = Gateway(stop_grace=VALUES["constructor"]) if "constructor" in given else Gateway()
    if "file" in given:
        gateway.configure(**{FILE: {"stop_grace": VALUES["file"]}})
    if "flag" in given:
        gateway.configure(stop_grace=VALUES["flag"])
    assert gateway.settings.stop_grace == (VALUES[given[0]] if given else DEFAULT)


def test_settings_are_read_when_they_are_asked_for_and_not_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway()
    monkeypatch.setenv("AGUI_GATEWAY_ALLOWED_HOSTS", "a.example, *.b.example,")
    assert gateway.settings.allowed_hosts == ["a.example", "*.b.example"]


def test_the_variables_of_the_client_commands_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "TOKEN", "SESSION"):
        monkeypatch.setenv(f"AGUI_GATEWAY_{name}", "x")
    monkeypatch.setenv("AGUI_GATEWAY_PORT", "1")
    assert Settings().model_dump(exclude_defaults=True) == {"port": 1}


STORES = "use memory://, sqlite:///relative.db, sqlite:////absolute.db or redis://host"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop_grace": -1}, "Input should be greater than or equal to 0"),
        ({"stop_grace": float("inf")}, "Input should be a finite number"),
        ({"max_runs": 0}, "Input should be greater than 0"),
        ({"store": "mysql://:secret@host"}, f"mysql:// is no store; {STORES}"),
        ({"store": "runs.db"}, f"what is no URL is no store; {STORES}"),
        ({"store": "sqlite://runs.db"}, f"sqlite:// is no store; {STORES}"),
        ({"store": "sqlite:///"}, f"sqlite:// is no store; {STORES}"),
        (
            {"workers": 2},
            "memory:// holds runs in one process, and 2 would each know only their own; use one worker",
        ),
        ({"nothing": 1}, "Extra inputs are not permitted"),
        ({FILE: {"nothing": 1}}, "Extra inputs are not permitted"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(**options)
    assert [item["msg"] for item in caught.value.errors()] == [message]
    assert "secret" not in str(caught.value)
