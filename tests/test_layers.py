"""The shape of the package: imports point down, no cycles, a pure core, short modules and functions."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the bottom to the top. `gateway` itself, the re-exports, stands where an application would: above http.
LAYERS = (
    {"errors", "settings"},
    {"wire"},
    {"run"},
    {"stores"},
    {"execution"},
    {"upstream"},
    {"http"},
    {"gateway"},
    {"demo"},
    {"cli", "__main__"},
    {"testing"},
)
PURE = {"wire", "run"}
# Effects by import and by call: tasks, clocks, randomness, logs, threads, sockets.
IMPURE = {"asyncio", "anyio", "concurrent", "logging", "multiprocessing", "random", "secrets", "select"}
IMPURE |= {"socket", "subprocess", "threading", "time"}
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "urandom"}
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60  # without the docstring: it is the code that has to be short

ASYNC = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def read(root: Path) -> dict[str, str]:
    """The modules of the package under `root` by dotted name, as text."""
    modules = {}
    for path in sorted((root / "gateway").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    return modules


def part_of(module: str) -> str:
    """What stands below the package: `wire` of `gateway.wire.sse`, `gateway` of `gateway`."""
    return module.removeprefix("gateway.").split(".")[0]


def layer_of(module: str) -> int | None:
    return next((level for level, names in enumerate(LAYERS) if part_of(module) in names), None)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(tree: ast.AST, modules: dict[str, str]) -> set[str]:
    """Every module it imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in modules else base for a in node.names}
    return found


def upward(module: str, imported: set[str]) -> list[str]:
    here = layer_of(module)
    if here is None:
        return [f"{module} belongs to no layer"]
    inside = sorted(name for name in imported if name.split(".")[0] == "gateway")
    return [f"{module} imports {name}" for name in inside if (layer_of(name) or 0) > here]


def impure(module: str, tree: ast.AST, imported: set[str]) -> list[str]:
    if part_of(module) not in PURE:
        return []
    found = [f"{module} imports {name}" for name in sorted(imported) if name.split(".")[0] in IMPURE]
    for node in ast.walk(tree):
        if isinstance(node, ASYNC) or (isinstance(node, ast.comprehension) and node.is_async):
            found.append(f"{module}:{getattr(node, 'lineno', '?')} is asynchronous")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in IMPURE_CALLS:
                found.append(f"{module}:{node.lineno} calls {name}()")
    return found


def too_long(module: str, source: str, tree: ast.AST) -> list[str]:
    lines = len(source.splitlines())
    found = [f"{module} has {lines} lines"] if lines > MAX_MODULE_LINES else []
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            length = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"{module}.{node.name} has {length} lines")
    return found


def problems(root: Path) -> list[str]:
    modules = read(root)
    found: list[str] = [] if modules else [f"no package under {root}"]
    graph: dict[str, set[str]] = {}
    for module, source in modules.items():
        tree = ast.parse(source)
        imported = imports(tree, modules)
        # Two classes may name each other in annotations; the upward rule still holds for such imports.
        type_only = [imports(node, modules) for node in ast.walk(tree) if is_for_types(node)]
        graph[module] = (imported & modules.keys()).difference(*type_only)
        relative = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]
        found += [f"{module}:{line} is a relative import" for line in relative]
        found += upward(module, imported) + impure(module, tree, imported) + too_long(module, source, tree)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("cycle: " + " -> ".join(reversed(error.args[1])))
    return found


def test_the_package_keeps_its_layers_its_pure_core_and_its_limits() -> None:
    assert problems(ROOT) == []


def test_a_clean_tree_has_no_problems(tmp_path: Path) -> None:
    write(tmp_path, {"run/log.py": "from gateway.wire import sse\nfrom gateway.errors import GatewayError\n"})
    write(tmp_path, {"wire/sse.py": "x = 1\n", "errors.py": "class GatewayError(Exception): ...\n"})
    write(tmp_path, {"http/app.py": "import asyncio\nfrom gateway.run.log import x\nasync def f(): ...\n"})
    write(tmp_path, {"__init__.py": "from gateway.http import app\n", "cli/main.py": "import gateway\n"})
    assert problems(tmp_path) == []


def test_two_modules_may_know_each_other_in_annotations(tmp_path: Path) -> None:
    write(tmp_path, {"run/a.py": "if TYPE_CHECKING:\n    from gateway.run.b import B\n"})
    write(tmp_path, {"run/b.py": "from gateway.run.a import A\n"})
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"wire/a.py": "from gateway.run import b", "run/b.py": ""}, "gateway.wire.a imports gateway.run.b"),
        (
            {"wire/a.py": "def f():\n    import gateway.stores.base"},
            "gateway.wire.a imports gateway.stores.base",
        ),
        ({"http/app.py": "from gateway import tool", "__init__.py": ""}, "gateway.http.app imports gateway"),
        ({"misc.py": ""}, "gateway.misc belongs to no layer"),
        ({"run/a.py": "from .b import x", "run/b.py": ""}, "gateway.run.a:1 is a relative import"),
        (
            {"run/a.py": "from gateway.run.b import x", "run/b.py": "from gateway.run.a import y"},
            "cycle: gateway.run.a -> gateway.run.b -> gateway.run.a",
        ),
        (
            {"run/a.py": "if TYPE_CHECKING:\n from gateway.http import b", "http/b.py": ""},
            "gateway.run.a imports gateway.http.b",
        ),
        ({"run/log.py": "from time import monotonic"}, "gateway.run.log imports time"),
        ({"run/log.py": "import datetime\nt = datetime.date.today()"}, "gateway.run.log:2 calls today()"),
        ({"wire/sse.py": "import concurrent.futures"}, "gateway.wire.sse imports concurrent.futures"),
        ({"run/log.py": "async def f(): ..."}, "gateway.run.log:1 is asynchronous"),
        ({"http/app.py": "x = 1\n" * 401}, "gateway.http.app has 401 lines"),
        ({"http/app.py": "def f():\n" + "    x = 1\n" * 60}, "gateway.http.app.f has 61 lines"),
        ({"cli/a.py": "class A:\n async def f():\n" + "  x = 1\n" * 60}, "gateway.cli.a.f has 61 lines"),
    ],
)
def test_each_violation_is_found(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    write(tmp_path, files)
    found = problems(tmp_path)
    assert len(found) == 1
    assert rotations(problem) & rotations(found[0])


def test_an_empty_place_is_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path) == [f"no package under {tmp_path}"]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / "gateway" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def rotations(problem: str) -> set[str]:
    """A cycle may be told from any of its modules on."""
    head, _, cycle = problem.partition("cycle: ")
    if not cycle:
        return {head}
    ring = cycle.split(" -> ")[1:]
    return {" -> ".join(ring[i:] + ring[:i]) for i in range(len(ring))}
