"""What docs/how-to/deploy.md says in numbers and names. Its commands are run by the tests beside this one."""

from __future__ import annotations

from gateway import Settings
from tests.deploy.programs import DEPLOY
from tests.deploy.test_kubernetes import CONTAINER, POD
from tests.deploy.units import Unit
from tests.docs.pages import page

PAGE = page("docs/how-to/deploy.md")
WORDS = " ".join(PAGE.text.split())


def test_every_recipe_is_named() -> None:
    files = {path.name for path in DEPLOY.iterdir() if path.is_file()} - {"Dockerfile.dockerignore"}
    assert {name for name in files if f"deploy/{name}" not in PAGE.text} == set()


def test_its_numbers_are_the_defaults() -> None:
    settings = Settings()
    assert f"`lease_seconds` ({settings.lease_seconds:g})" in WORDS
    assert f"`store_timeout` ({settings.store_timeout:g} s)" in WORDS
    assert f"longer than `loop_dead_after` ({settings.loop_dead_after:g} s)" in WORDS
    assert f"`drain_timeout` ({settings.drain_timeout:g} s) + 2 s" in WORDS
    kept = {row[2]: row[1] for row in PAGE.table("what")}
    assert (kept["`run_ttl`"], settings.run_ttl) == ("1 hour", 3600)
    for name in ("interrupt_ttl", "session_ttl"):
        assert (kept[f"`{name}`"], getattr(settings, name)) == ("7 days", 7 * 86_400)
    assert kept["`max_run_events`, `max_run_bytes`"].startswith(f"{settings.max_run_events:,}, ".replace(",", " ", 2))
    assert settings.max_run_bytes == 2**30


def test_its_times_are_those_of_the_manifests() -> None:
    rows = {row[0]: row[1] for row in PAGE.table("time")}
    assert rows == {
        "`preStop`": f"{CONTAINER['lifecycle']['preStop']['exec']['command'][1]} s",
        "`terminationGracePeriodSeconds`": f"{POD['terminationGracePeriodSeconds']} s",
        "`readinessProbe` on `/readyz`": period("readinessProbe"),
        "`livenessProbe` on `/healthz`": period("livenessProbe"),
    }
    assert f"KillMode={Unit().one('KillMode')}" in PAGE.text


def period(probe: str) -> str:
    return f"{CONTAINER[probe]['periodSeconds'] * CONTAINER[probe]['failureThreshold']} s"
