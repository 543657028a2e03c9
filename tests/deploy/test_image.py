"""deploy/Dockerfile as far as it can be looked at without making the image; slow_recipes.py makes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway import __version__
from tests.deploy.image import DOCKERFILE, LOCK, ROOT, built, ignores, locked, steps

TEXT = DOCKERFILE.read_text("utf-8")


def test_only_what_is_served_gets_into_the_build() -> None:
    kept = ignores(ROOT)
    assert {name.partition("/")[0] for name in kept} == {
        "LICENSE", "README.md", "deploy", "gateway", "pyproject.toml", "requirements", "web-demo",
    }  # fmt: skip
    assert {name for name in kept if name.startswith("deploy/")} == {"deploy/app.py", "deploy/requirements.txt"}
    assert not [name for name in kept if "__pycache__" in name or name.endswith((".env", ".db", ".pem", ".key"))]
    assert {"web-demo/page-tools.js", "requirements/run.txt", "gateway/py.typed"} <= kept


def test_the_final_stage_is_without_tools_root_and_secrets() -> None:
    all_steps = steps(TEXT)
    last = max(index for index, step in enumerate(all_steps) if step.name == "FROM")
    final = all_steps[last:]
    assert last > 0, "what builds the wheel is another stage"
    assert [step for step in final if step.name in ("RUN", "ADD", "ARG")] == []
    (user,) = (step.rest for step in final if step.name == "USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "Kubernetes cannot see that a name is not root"
    names = re.findall(r"(\w+)=", " ".join(step.rest for step in all_steps if step.name in ("ENV", "ARG")))
    assert not [name for name in names if re.search("KEY|TOKEN|SECRET|PASSWORD|STORE", name)]
    settings = {step.name: step.rest for step in final}
    assert "PYTHONUNBUFFERED=1" in settings["ENV"]
    assert settings["STOPSIGNAL"] == "SIGTERM"
    assert "curl" not in settings["HEALTHCHECK"]
    assert f"agui-gateway:{__version__} ." in TEXT


def test_the_lock_of_the_image_is_that_of_the_repository() -> None:
    assert LOCK.read_text("utf-8") == locked(), "run scripts/recipes lock"
    assert not re.search(r"^(pip|setuptools|hatchling|pytest|mypy)==", LOCK.read_text("utf-8"), re.MULTILINE)


def test_a_copy_of_what_is_ignored_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"COPY tests: not there, or ignored"):
        built(ROOT, tmp_path, Path("python"), "FROM python\nCOPY tests /x\n")


def test_instructions_of_several_lines_are_one() -> None:
    found = steps('# a comment\nRUN a \\\n    && b\n\nCMD ["c"]\n')
    assert [(step.name, step.rest) for step in found] == [("RUN", "a && b"), ("CMD", '["c"]')]
