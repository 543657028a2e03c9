"""`agui-gateway demo` and `agui-gateway serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from gateway.cli.workers import is_worker
from gateway.demo.agent import PATH, agent_app
from gateway.demo.app import create_demo
from gateway.demo.backend import Backend
from gateway.http.guard import is_loopback

__all__ = ["demo", "serve"]

# Where the demo's workers find its agent.
DEMO_AGENT = "_AGUI_GATEWAY_DEMO_AGENT"
ENDING = """

    The first SIGTERM or Ctrl-C lets the runs at work end (`drain_timeout`), then the server exits with code 0; a second
    one exits at once, with code 128 and the signal's number.
    """


@click.command(epilog=ENDING)
@settings_options
def demo(**flags: Any) -> None:
    """Serve tools that do something, and an agent, with a page to try them."""
    with demo_agent() as agent:
        gateway = create_demo(agent)
        _configure(gateway, flags)
        if gateway.settings.page is None:
            gateway.configure(page=True)
        _serve(gateway, "The demo is at {url}   (Ctrl-C ends it)")


@click.command(epilog=ENDING)
@click.argument("app", required=False)
@click.option(
    "--agent", "agents", multiple=True, metavar="NAME=URL", help="An AG-UI agent to stand in front of; repeatable."
)
@click.option(
    "--mcp",
    "servers",
    multiple=True,
    metavar="NAME=URL",
    help="An MCP server whose tools to add, by its URL or the command that starts it; repeatable.",
)
@settings_options
def serve(agents: Sequence[str], servers: Sequence[str], app: str | None = None, **flags: Any) -> None:
    """Serve APP: a Gateway object as `module:name`, or a file, `gateway.toml`; or agents and MCP servers alone."""
    if app is None and not agents and not servers:
        raise UsageError("Say what to serve: an APP, or an agent as --agent NAME=URL.")
    gateway = _gateway(app)
    names = [_add("--agent", given, gateway.agents.add) for given in agents]
    names += [_add("--mcp", given, gateway.mcp_servers.add) for given in servers]
    settings = _configure(gateway, flags)
    if settings.page is None and is_loopback(settings.host):
        gateway.configure(page=True)
    what = ", ".join(name for name in (app, *names) if name is not None)
    _serve(gateway, "Serving " + what.replace("{", "{{").replace("}", "}}") + " at {url}   (Ctrl-C ends it)")


@contextmanager
def demo_agent() -> Iterator[str]:
    """The URL of the demo's agent: a server in this process, or in the one that has started this worker."""
    if is_worker():
        yield os.environ[DEMO_AGENT]
        return
    with Backend(agent_app) as backend:
        os.environ[DEMO_AGENT] = backend.url + PATH
        try:
            yield os.environ[DEMO_AGENT]
        finally:
            del os.environ[DEMO_AGENT]


def _gateway(app: str | None) -> Gateway:
    if app is None:
        return Gateway()
    return GatewayFile(app).gateway() if app.endswith(".toml") else load_gateway(app)


def _add(flag: str, given: str, add: Callable[[str, str], None]) -> str:
    """Adds what a flag says, and returns its name."""
    name, separator, where = given.partition("=")
    if not separator:
        raise UsageError(f"{flag} {given}: write it as NAME=URL.")
    try:
        add(name, where)
    except (ValueError, ImportError) as error:
        raise UsageError(f"{flag} {name}: {error}") from None
    return name


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
