"""Agents behind https: a certificate that nobody vouches for is a connection that was not made."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.http.site import serving
from tests.upstream.backend import answering
from tests.upstream.test_relay import play, speaks


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that is its own authority, with its key beside it."""
    folder = tmp_path_factory.mktemp("certificate")
    made = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"), "-days", "2", "-nodes"]
    named = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *named, *made]
    subprocess.run(command, check=True, capture_output=True)
    return folder


async def test_a_certificate_is_checked(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    await asyncio.to_thread(context.load_cert_chain, certificate / "cert.pem", certificate / "key.pem")
    async with answering(speaks, tls=context) as backend:
        async with serving(agents={"support": backend.url}) as site:
            events = await play(site)
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "upstream_unavailable")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        async with serving(agents={"support": backend.url.replace("https", "HTTPS")}) as site:
            events = await play(site)
        assert events[-1]["type"] == "RUN_FINISHED"
