"""One flag for every field of `Settings`, made from the field itself."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from gateway.settings import Settings

__all__ = ["settings_options"]


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the flags; the command receives those that were given, by field name."""

    @wraps(command)
    def given_only(**values: Any) -> None:
        command(**{name: value for name, value in values.items() if value is not None})

    for name, field in reversed(Settings.model_fields.items()):
        given_only = _option(name, field)(given_only)
    return given_only


def _option(name: str, field: FieldInfo) -> Callable[[Any], Any]:
    flag = f"--{name.replace('_', '-')}"
    kind = _plain(field.annotation)
    default = "" if field.default is None else f"  [default: {field.default}]"
    help_text = f"{field.description}{default}"
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=help_text)
    if get_origin(kind) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(kind)), help=help_text)
    return click.option(flag, name, type=kind, help=help_text)


def _plain(annotation: Any) -> Any:
    """The type behind `X | None`."""
    if get_origin(annotation) in (types.UnionType, Union):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation
