"""Where a gateway is and who calls it: the options of all client commands, and one request with one JSON answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import click
import httpx

from gateway.cli.exits import Refused, Unreachable, UsageError
from gateway.http.guard import is_loopback
from gateway.settings import ENV_PREFIX
from gateway.wire.codec import decode

__all__ = ["Target", "check", "describe", "path", "target_options"]

DEFAULT_URL = "http://127.0.0.1:8000"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0

_SESSION = re.compile(r"[A-Za-z0-9_-]{16,128}")
_TOKEN = re.compile(r"[\x21-\x7e]+")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Target:
    """A gateway's `url` without a slash at its end, and the credentials for it; these are in no `repr`."""

    url: str
    token: str | None = field(default=None, repr=False)
    session: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            _ = parts.port, httpx.URL(self.url)  # both raise for what they do not take
        except (ValueError, httpx.InvalidURL) as error:
            raise UsageError(f"--url is not one: {error}.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("--url must be of the form http://host:port or https://host/path.")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise UsageError("--url must have no credentials, query or fragment; see --token and --session.")
        if self.session is not None and not _SESSION.fullmatch(self.session):
            raise UsageError("--session must be 16 to 128 of A-Z a-z 0-9 _ -")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise UsageError("--token must be visible ASCII characters without a space.")

    def client(self) -> httpx.AsyncClient:
        """A client for this gateway, with its credentials."""
        headers = {"accept-encoding": "identity"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        if self.session is not None:
            headers["x-session-id"] = self.session
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            # A proxy of the environment is for other machines.
            trust_env=not is_loopback(urlsplit(self.url).hostname),
        )

    async def ask(self, client: httpx.AsyncClient, method: str, path: str, **options: Any) -> dict[str, Any]:
        """The JSON object that the gateway answers; `Refused` or `Unreachable` with its own words otherwise."""
        try:
            response = await client.request(method, path, **options)
        except httpx.RequestError as error:
            raise self.unreachable(error) from None
        check(response)
        with suppress(ValueError):
            answer = decode(response.content)
            if isinstance(answer, dict):
                return answer
        raise Unreachable(f"{self.url} does not answer as a gateway does.")

    def unreachable(self, error: Exception) -> Unreachable:
        """What to say when no connection came about."""
        hint = " Is the gateway running?" if isinstance(error, httpx.ConnectError) else ""
        return Unreachable(f"Cannot reach {self.url}: {describe(error)}.{hint}")


def target_options(command: F) -> F:
    """Adds --url, --token and --session; the command receives a `Target`."""

    @wraps(command)
    def with_target(url: str, token: str | None, session: str | None, **options: Any) -> Any:
        return command(Target(url.rstrip("/"), token, session), **options)

    wrapped: Any = with_target
    for name, default, text in reversed(
        (
            ("url", DEFAULT_URL, "Where the gateway is."),
            ("token", None, "Sent as `Authorization: Bearer`; other users of this machine see flags, not variables."),
            ("session", None, "Sent as X-Session-Id: what it starts belongs to it, and `runs` lists it."),
        )
    ):
        # The variable's value is a secret, so it must not become a default that the help shows.
        wrapped = click.option(
            f"--{name}",
            default=default,
            show_default=default is not None,
            envvar=ENV_PREFIX + name.upper(),
            show_envvar=True,
            help=text,
        )(wrapped)
    return wrapped  # type: ignore[no-any-return]  # click's decorators return what they are given


def path(*parts: str) -> str:
    """A path of these parts, each one segment whatever is in it."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def check(response: httpx.Response) -> None:
    """Raises `Refused` for a 4xx, `Unreachable` for every other answer that is none; the body has been read."""
    if response.is_success:
        return
    says = f"{_message(response)} ({response.status_code})"
    if response.is_client_error:
        raise Refused(says)
    raise Unreachable(says)


def describe(error: Exception) -> str:
    """An error of httpx in words; some of them have none."""
    text = str(error).rstrip(".")
    return text or {"ConnectTimeout": "no connection in time", "ReadTimeout": "no answer in time"}.get(
        type(error).__name__, type(error).__name__
    )


def _message(response: httpx.Response) -> str:
    try:
        body = decode(response.content)
    except ValueError:
        body = None
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return f"{error.get('code')}: {error.get('message')}"
    if response.is_redirect:
        return f"The address redirects to {response.headers.get('location', 'nowhere')}"
    return f"Not an answer of a gateway: {response.reason_phrase or 'unknown'}"
