"""`agui-gateway`: `demo` and `serve`."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from gateway import Gateway, __version__
from gateway.cli.options import settings_options
from gateway.cli.server import serve as run_server
from gateway.demo.app import create_demo
from gateway.http.guard import is_loopback

__all__ = ["main"]

USAGE = 2


class UsageError(click.ClickException):
    """Something on the command line is wrong; exit code 2."""

    exit_code = USAGE


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="agui-gateway")
def main() -> None:
    """Run tools for browsers: stream what they emit as AG-UI events, and stop them when somebody presses Stop."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("asyncio").setLevel(logging.WARNING)


@main.command()
@settings_options
def demo(**flags: Any) -> None:
    """Serve tools that do something, with a page to try them."""
    _serve(create_demo(), {"page": True, **flags}, "The demo is at {url}   (Ctrl-C ends it)")


@main.command()
@click.argument("app")
@settings_options
def serve(app: str, **flags: Any) -> None:
    """Serve APP, a Gateway object as `module:name`."""
    _serve(load(app), flags, "Serving " + app.replace("{", "{{").replace("}", "}}") + " at {url}   (Ctrl-C ends it)")


def load(target: str) -> Gateway:
    """The Gateway at `module:name`; `UsageError` says what is not there."""
    module_name, _, name = target.partition(":")
    if not name:
        raise UsageError(f"{target!r} does not name an object: write it as module:name.")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the module is there, but one that it imports is not
        raise UsageError(f"There is no module {module_name!r} here or installed.") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"Module {module_name!r} has no {name!r}.")
        found = getattr(found, part)
    if not isinstance(found, Gateway):
        raise UsageError(f"{target!r} is not a Gateway but {type(found).__name__}.")
    return found


def _serve(gateway: Gateway, flags: dict[str, Any], announce: str) -> None:
    try:
        gateway.configure(**flags)
        settings = gateway.settings
    except ValidationError as error:
        lines = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False))
        raise UsageError("These settings do not fit: " + "; ".join(lines)) from None
    local = is_loopback(settings.host)
    if not local and not settings.allow_anonymous:
        raise UsageError(
            f"Refusing to serve callers without credentials on {settings.host}: add --allow-anonymous to do so."
        )
    if settings.page is None and local:
        gateway.configure(page=True)
    try:
        run_server(gateway, announce=announce)
    except OSError as error:
        raise click.ClickException(f"Cannot bind {settings.host}:{settings.port}: {error.strerror}") from None
