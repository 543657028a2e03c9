"""The image of deploy/Dockerfile, made without an engine: its steps, carried out in folders.

Every stage has a folder that stands for its root; absolute paths in COPY, WORKDIR and RUN are taken to be below it. The
base image is the Python that is at hand. `scripts/recipes lock` writes deploy/requirements.txt.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

__all__ = ["DOCKERFILE", "LOCK", "ROOT", "Image", "Step", "built", "ignores", "locked", "steps"]

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
LOCK = ROOT / "deploy" / "requirements.txt"
HEAD = "# Written by `scripts/recipes lock` from requirements/dev.txt: what agui-gateway[mcp,redis] needs to run.\n"
BUILD_SECONDS = 600
_PATH = re.compile(r"(?<![\w./-])/(?=\w)")


@dataclass(frozen=True)
class Step:
    """An instruction, with its lines joined."""

    name: str
    rest: str


def steps(text: str) -> list[Step]:
    """The instructions of a Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    parts = [line.strip().split(None, 1) for line in lines if line.strip()]
    return [Step(name.upper(), rest) for name, rest in parts]


@dataclass
class Image:
    """A stage, and in the end the image: its root folder and what its instructions have set."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = ""
    stop_signal: str = "SIGTERM"
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def place(self, path: str) -> Path:
        """Where a path of the image is."""
        return Path(f"{self.root}{os.path.normpath(os.path.join(self.folder, path))}")

    @property
    def environment(self) -> dict[str, str]:
        """What a process in it gets, and the machine's own settings of pip."""
        machine = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        path = f"{self.root}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
        env = {"HOME": str(self.root), "PATH": path, **machine}
        for name, value in self.env.items():
            moved = _PATH.sub(f"{self.root}/", value) if name == "PATH" else value
            env[name] = moved.replace("$PATH", path)
        return env

    def files(self) -> Iterator[str]:
        """What is in it beside the base, from its root."""
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if not path.is_dir() and not name.startswith("usr/local/bin/"):
                yield name


def built(context: Path, folder: Path, python: Path, text: str = "") -> Image:
    """The image of the Dockerfile (or of `text`), made below `folder` from what `context` lets through."""
    stages: dict[str, Image] = {}
    image: Image | None = None
    kept = ignores(context)
    for step in steps(text or DOCKERFILE.read_text("utf-8")):
        if step.name == "FROM":
            image = _stage(folder / f"stage-{len(stages)}", python)
            stages[step.rest.rpartition(" AS ")[2] if " AS " in step.rest else str(len(stages))] = image
        elif step.name != "ARG":
            assert image is not None
            _apply(step, image, stages, context, kept)
    assert image is not None
    return image


def _stage(root: Path, python: Path) -> Image:
    base = root / "usr/local/bin"
    base.mkdir(parents=True)
    (base / "python").symlink_to(python)
    return Image(root)


def _apply(step: Step, image: Image, stages: dict[str, Image], context: Path, kept: set[str]) -> None:
    match step.name:
        case "ENV":
            image.env |= dict(item.split("=", 1) for item in shlex.split(step.rest))
        case "WORKDIR":
            image.folder = str(Path(image.folder) / step.rest)
            image.place("").mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(shlex.split(step.rest), image, stages, context, kept)
        case "RUN":
            _run(step.rest, image)
        case "USER":
            image.user = step.rest
        case "STOPSIGNAL":
            image.stop_signal = step.rest
        case "CMD":
            image.command = json.loads(step.rest)
        case "HEALTHCHECK":
            image.health = json.loads(step.rest.partition(" CMD ")[2])
        case "EXPOSE":
            pass
        case _:
            raise AssertionError(f"an instruction that is not known here: {step}")


def _run(command: str, image: Image) -> None:
    done = subprocess.run(
        ["sh", "-euc", _PATH.sub(f"{image.root}/", command)],
        cwd=image.place(""),
        env=image.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"


def _copy(words: list[str], image: Image, stages: dict[str, Image], context: Path, kept: set[str]) -> None:
    source = next((stages[word.partition("=")[2]] for word in words if word.startswith("--from=")), None)
    *names, target = [word for word in words if not word.startswith("--")]
    into = image.place(target)
    for name in names:
        if source is not None:
            _copy_stage(source, name, image, into)
            continue
        found = [path for path in kept if path == name or path.startswith(f"{name}/")]
        assert found, f"COPY {name}: not there, or ignored"
        for path in found:
            inside = Path(path).relative_to(name) if path != name else Path(path).name
            place = into / inside if path != name or target.endswith("/") else into
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(context / path, place)


def _copy_stage(source: Image, name: str, image: Image, into: Path) -> None:
    """The scripts of a virtual environment name their interpreter by its path, which is another folder here."""
    shutil.copytree(source.place(name), into, symlinks=True)
    for script in into.glob("bin/*"):
        if script.is_symlink():
            if (target := os.readlink(script)).startswith(f"{source.root}/"):
                script.unlink()
                script.symlink_to(target.replace(str(source.root), str(image.root), 1))
        elif script.is_file():
            script.write_bytes(script.read_bytes().replace(str(source.root).encode(), str(image.root).encode()))
    config = into / "pyvenv.cfg"
    config.write_text(config.read_text("utf-8").replace(str(source.root), str(image.root)), "utf-8")


def ignores(context: Path) -> set[str]:
    """The files of the context that Dockerfile.dockerignore lets through; the last line that fits decides."""
    lines = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text("utf-8").splitlines()
    rules = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    assert rules[0] == "*", "everything is ignored that is not named"
    named = [rule[1:] for rule in rules if rule.startswith("!")]
    files = {str(path.relative_to(context)) for name in named for path in _below(context / name)}
    again = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    return {name for name in files if not any(fnmatch.fnmatch(part, a) for part in Path(name).parts for a in again)}


def _below(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (found for found in path.rglob("*") if found.is_file())
    elif path.is_file():
        yield path


def locked() -> str:
    """The entries of requirements/dev.txt that `agui-gateway[mcp,redis]` needs, with all that these need."""
    text = (ROOT / "requirements" / "dev.txt").read_text("utf-8")
    entries = re.findall(r"^(([a-z0-9.-]+)==.*\n(?:    --hash.*\n)+)", text, re.MULTILINE)
    by_name = {name: entry.rstrip("\n").removesuffix(" \\") + "\n" for entry, name in entries}
    wanted: set[str] = set()
    left = [Requirement("agui-gateway[mcp,redis]")]
    while left:
        one = left.pop()
        for line in requires(one.name) or []:
            needed = Requirement(line)
            extras = one.extras or {""}
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            name = re.sub(r"[-_.]+", "-", needed.name).lower()
            if name not in wanted or needed.extras:
                wanted.add(name)
                left.append(needed)
    return HEAD + "".join(by_name[name] for name in sorted(wanted))


if __name__ == "__main__":
    LOCK.write_text(locked(), "utf-8")
