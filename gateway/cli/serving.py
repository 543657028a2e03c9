"""`agui-gateway demo` and `agui-gateway serve`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click
from pydantic import ValidationError

from gateway import Gateway, Settings
from gateway.cli.config import GatewayFile
from gateway.cli.exits import UsageError
from gateway.cli.load import load_gateway
from gateway.cli.logs import configure_logging
from gateway.cli.options import flag_of, settings_options, variable_of
from gateway.cli.server import serve as run_server
from gateway.demo.app import create_demo
from gateway.http.guard import is_loopback

__all__ = ["demo", "serve"]

ENDING = """

    The first SIGTERM or Ctrl-C lets the runs at work end (`drain_timeout`), then the server exits with code 0; a second
    one exits at once, with code 128 and the signal's number.
    """


@click.command(epilog=ENDING)
@settings_options
def demo(**flags: Any) -> None:
    """Serve tools that do something, with a page to try them."""
    gateway = create_demo()
    _configure(gateway, flags)
    if gateway.settings.page is None:
        gateway.configure(page=True)
    _serve(gateway, "The demo is at {url}   (Ctrl-C ends it)")


@click.command(epilog=ENDING)
@click.argument("app")
@settings_options
def serve(app: str, **flags: Any) -> None:
    """Serve APP: a Gateway object as `module:name`, or a file, `gateway.toml`."""
    if app.endswith(".toml"):
        file = GatewayFile(app)
        gateway = file.gateway()
    else:
        gateway = load_gateway(app)
    settings = _configure(gateway, flags)
    if settings.page is None and is_loopback(settings.host):
        gateway.configure(page=True)
    _serve(gateway, "Serving " + app.replace("{", "{{").replace("}", "}}") + " at {url}   (Ctrl-C ends it)")


def _configure(gateway: Gateway, flags: Mapping[str, Any]) -> Settings:
    gateway.configure(**flags)
    try:
        return gateway.settings
    except ValidationError as error:
        faults = [f"{_origin(item['loc'], flags)}: {item['msg']}" for item in error.errors(include_url=False)]
        raise UsageError("\n".join(faults)) from None


def _origin(where: tuple[str | int, ...], flags: Mapping[str, Any]) -> str:
    """Where a value that does not fit was written. Files are checked when they are read, so it is not there."""
    name = str(where[0]) if where else "settings"
    if name in flags:
        return flag_of(name)
    if name in Settings.model_fields and any(variable_of(name) == variable.upper() for variable in os.environ):
        return variable_of(name)
    return f"Gateway(…): {name}"


def _serve(gateway: Gateway, announce: str) -> None:
    settings = gateway.settings
    identifies = gateway.authenticates
    if not is_loopback(settings.host) and not identifies and not settings.allow_anonymous:
        raise UsageError(
            f"Refusing to serve callers without credentials on {settings.host}: "
            "give the Gateway an authenticator, or add --allow-anonymous."
        )
    configure_logging()
    try:
        run_server(gateway, announce=announce)
    except OSError as error:
        # Python's own `strerror` says the address once more; an unknown name has no errno of the system.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise click.ClickException(f"Cannot bind {settings.host}:{settings.port}: {why}.") from None
