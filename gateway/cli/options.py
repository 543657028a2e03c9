"""One flag for every field of `Settings`, made from the field itself."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from gateway.settings import ENV_PREFIX, Settings

__all__ = ["default_of", "flag_of", "plain_type", "settings_options", "variable_of"]


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the flags; the command receives those that were given, by field name."""

    @wraps(command)
    def given_only(**values: Any) -> None:
        # Nothing here is None unless it was not given: no flag can say None.
        command(**{name: value for name, value in values.items() if value is not None})

    for name, field in reversed(Settings.model_fields.items()):
        given_only = _option(name, field)(given_only)
    return given_only


def flag_of(name: str) -> str:
    """`stop_grace` is `--stop-grace`."""
    return f"--{name.replace('_', '-')}"


def variable_of(name: str) -> str:
    """`stop_grace` is `AGUI_GATEWAY_STOP_GRACE`."""
    return ENV_PREFIX + name.upper()


def plain_type(field: FieldInfo) -> Any:
    """The type behind `X | None`."""
    annotation = field.annotation
    if get_origin(annotation) in (types.UnionType, Union):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def default_of(field: FieldInfo) -> str:
    """The default as one would write it on the command line; empty for none."""
    default = field.default
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list):
        return ",".join(default)
    return "" if default is None else f"{default}"


def _option(name: str, field: FieldInfo) -> Callable[[Any], Any]:
    flag, kind = flag_of(name), plain_type(field)
    default = f"; default: {shown}" if (shown := default_of(field)) else ""
    help_text = f"{field.description}  [env: {variable_of(name)}{default}]"
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help_text)
    if get_origin(kind) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(kind)), help=help_text)
    if get_origin(kind) is list:
        # Split by the field itself, as in the environment.
        return click.option(flag, name, type=str, metavar="A,B,…", help=help_text)
    return click.option(flag, name, type=kind, help=help_text)
