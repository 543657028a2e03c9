"""`@tool` and `Tool`: a function with a name, a schema and the rules by which the gateway may call it.

Only describes; nothing here runs a tool. Everything that can be wrong with one is said at decoration.
Contract 2.1.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any, Generic, Literal, TypedDict, Unpack, get_args, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import ParamSpec, TypeVar, is_typeddict

from gateway.errors import ToolError
from gateway.execution import docstrings
from gateway.execution.names import TOOL_NAME, check_event_name
from gateway.execution.outcomes import ToolOutput, reports_error
from gateway.execution.schema import (
    adapter_of,
    details_of,
    parameters_of,
    return_type_of,
    schema_of,
    summary_of,
)

__all__ = ["Tool", "ToolOptions", "tool"]

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

Kind = Literal["async", "plain", "async_generator", "generator"]
TaskSupport = Literal["forbidden", "optional", "required"]
Visibility = Literal["visible", "hidden"]
Isolation = Literal["thread", "process"]
Approval = bool | Callable[..., Any]

_HINTS = {  # our keys -> MCP's
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`; see `Tool` for what they mean."""

    name: str | None
    description: str | None
    timeout: float | None
    task_support: TaskSupport
    visibility: Visibility
    isolation: Isolation
    cooperative: bool
    needs_approval: Approval
    requires: str | Iterable[str]
    output_model: Any
    events: Mapping[str, Any] | None
    annotations: Mapping[str, bool] | None


class Tool(Generic[P, R]):
    """A function that agents and people may call through the gateway; `tool(...)(x)` just calls the function.

    - `name` matches `[A-Za-z0-9_.-]{1,128}`; `description` is the first paragraph of the docstring.
    - `parameters` is the JSON Schema of the arguments, `output_schema` that of the result's structured
      content or `None`.
    - `timeout` in seconds: `0` waits forever, `None` is the gateway's default.
    - `task_support`: `forbidden`, `optional` or `required`. `visibility`: `visible` or `hidden`.
    - `isolation`: `thread` or `process`, for plain functions. `cooperative`: the signal first, cancellation
      later.
    - `needs_approval`: `True` or a callable of the arguments. `requires`: the scopes a caller must hold.
    - `output_model` validates the result; `events` are the custom events it emits, by name.
    - `annotations`: `read_only`, `destructive`, `idempotent`, `open_world`.

    `TypeError` or `ValueError` at construction says what does not fit. Source: contract 2.1.
    """

    def __init__(self, func: Callable[P, R], /, **options: Unpack[ToolOptions]) -> None:
        unknown = sorted(set(options) - set(ToolOptions.__annotations__))
        if unknown:
            raise TypeError(f"Unknown option of tool: {', '.join(unknown)}.")
        function: Any = func.__func__ if isinstance(func, staticmethod) else func
        _check_callable(function)
        summary, entries = docstrings.parse(_docstring_of(function))
        self.func: Callable[P, R] = function
        self.name = _name(options.get("name"), function)
        self.kind: Kind = _kind_of(function)
        self.description = _text(options.get("description"), "description", summary)
        self.timeout = _timeout(options.get("timeout"))
        self.task_support: TaskSupport = _one_of(TaskSupport, "task_support", options, "optional")
        self.visibility: Visibility = _one_of(Visibility, "visibility", options, "visible")
        self.isolation: Isolation = _one_of(Isolation, "isolation", options, "thread")
        if self.isolation == "process":
            _check_process(function, self.name, self.kind)
        self.cooperative = _flag(options.get("cooperative", False), "cooperative")
        self.needs_approval = _approval(options.get("needs_approval", False))
        self.requires = _scopes(options.get("requires", ()))
        self.events = _events(options.get("events"))
        self.annotations = _annotations(options.get("annotations"))
        self.output_model = options.get("output_model")
        self._parameters = parameters_of(function, self.name, entries)
        self.parameters = self._parameters.schema
        self._output = None
        if self.output_model is not None:
            self._output = adapter_of(self.output_model, f'output_model of "{self.name}"')
        self.output_schema, self._wrapped = _output_schema(self._output or _returned(function))
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"

    @property
    def retryable(self) -> bool:
        """Whether a call that ended in the middle may be made again: it changes nothing, or nothing twice."""
        return self.annotations.get("read_only", False) or self.annotations.get("idempotent", False)

    def validate(self, arguments: object) -> dict[str, Any]:
        """Arguments as the function takes them, by parameter; `InvalidArguments` names each wrong field."""
        return self._parameters.validate(arguments)

    def bind(self, validated: Mapping[str, Any], ctx: object) -> Callable[[], Any]:
        """The call with validated arguments, the context where it is asked for, ready to be made."""
        return self._parameters.bind(self.func, validated, ctx)

    def check_output(self, value: Any) -> Any:
        """The result as `output_model` reads it (a model, say); `ToolError` names the path of what is wrong.

        Of a `ToolOutput` the structured content is validated and the output returned as it is. Answers that
        report an error are not results, and pass.
        """
        if self._output is None or (isinstance(value, str) and reports_error(value)):
            return value
        subject = value
        if isinstance(value, ToolOutput):
            if value.is_error or value.structured_content is None or reports_error(value.text):
                return value
            subject = value.structured_content
            if self._wrapped and set(subject) == {"result"}:
                subject = subject["result"]
        try:
            validated = self._output.validate_python(subject)
        except ValidationError as exc:
            summary = summary_of(details_of(exc))
            raise ToolError("failed", f'The result of "{self.name}" does not fit: {summary}') from None
        return value if isinstance(value, ToolOutput) else validated

    def descriptor(self, default_timeout: float | None = None) -> dict[str, Any]:
        """The tool as `GET /tools` shows it, `annotations` under MCP's names (`readOnlyHint`, …).

        `{name, description, parameters, outputSchema?, timeout, taskSupport, annotations}`.
        """
        shown: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        if self.output_schema is not None:
            shown["outputSchema"] = self.output_schema
        shown["timeout"] = default_timeout if self.timeout is None else self.timeout
        shown["taskSupport"] = self.task_support
        shown["annotations"] = {_HINTS[key]: value for key, value in self.annotations.items()}
        return shown


@overload
def tool(func: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(func: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a tool of a function or generator, plain or async: `@tool`, `@tool(timeout=60)`, `tool(obj.method)`.

    A parameter annotated `ToolContext` is given the context and is not an argument; all others become the
    JSON Schema, described by `Annotated[..., Field(...)]` or the docstring's `Args:`. Options, errors and
    source: see `Tool`.
    """
    if func is not None:
        return Tool(func, **options)
    return lambda function: Tool(function, **options)


def _check_callable(func: object) -> None:
    if isinstance(func, Tool):
        raise TypeError(f'"{func.name}" is already a tool; make another one of its `func`.')
    if not callable(func) or isinstance(func, type):
        raise TypeError(f"A tool is made of a function, not of {func!r}.")
    owner, _, _ = getattr(func, "__qualname__", "").rpartition(".")
    if inspect.isfunction(func) and owner and not owner.endswith("<locals>"):
        first = next(iter(inspect.signature(func).parameters), "")
        if first in ("self", "cls"):
            raise TypeError(f"{func.__qualname__} is a method without its object; use `tool(obj.{func.__name__})`.")


def _core(func: Any) -> Any:
    """What is behind a partial."""
    return _core(func.func) if isinstance(func, functools.partial) else func


def _body(func: Any) -> Any:
    """The function that runs: behind a partial, or `__call__` of an instance."""
    core = _core(func)
    return core if inspect.isroutine(core) else core.__call__


def _docstring_of(func: Any) -> str | None:
    core = _core(func)
    return _body(func).__doc__ or (None if inspect.isroutine(core) else type(core).__doc__)


def _kind_of(func: Any) -> Kind:
    body = _body(func)
    if inspect.isasyncgenfunction(body):
        return "async_generator"
    if inspect.iscoroutinefunction(body):
        return "async"
    return "generator" if inspect.isgeneratorfunction(body) else "plain"


def _name(given: object, func: Any) -> str:
    core = _core(func)
    name = getattr(core, "__name__", type(core).__name__) if given is None else given
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}.")
    if not TOOL_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a tool name: 1 to 128 of A-Z a-z 0-9 _ . -")
    return name


def _text(given: object, option: str, default: str) -> str:
    if given is None:
        return default
    if not isinstance(given, str):
        raise TypeError(f"{option} must be a str, not {type(given).__name__}.")
    return given


def _timeout(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None, not {given!r}.")
    if not 0 <= given < math.inf:
        raise ValueError(f"timeout must be 0 (waits forever) or more seconds, not {given!r}.")
    return given


def _one_of(choices: Any, option: str, options: ToolOptions, default: str) -> Any:
    given = options.get(option, default)
    if given not in get_args(choices):
        raise ValueError(f"{option} must be one of {', '.join(get_args(choices))}, not {given!r}.")
    return given


def _check_process(func: Any, name: str, kind: Kind) -> None:
    # The child finds the function as module:qualname; nothing else of it can be sent there.
    qualname = getattr(func, "__qualname__", "")
    if not isinstance(func, types.FunctionType) or kind != "plain" or "." in qualname or "<" in qualname:
        raise TypeError(f'isolation="process" needs a plain function at the top of a module; "{name}" is not one.')


def _flag(given: object, option: str) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"{option} must be True or False, not {given!r}.")
    return given


def _approval(given: Approval) -> Approval:
    if not isinstance(given, bool) and not callable(given):
        raise TypeError(f"needs_approval must be True, False or a callable of the arguments, not {given!r}.")
    return given


def _scopes(given: object) -> frozenset[str]:
    scopes = [given] if isinstance(given, str) else given
    if not isinstance(scopes, Iterable):
        raise TypeError(f"requires must be a scope or several, not {given!r}.")
    found = frozenset(scopes)
    if not all(isinstance(scope, str) and scope for scope in found):
        raise TypeError(f"requires must hold scopes, which are non-empty str, not {given!r}.")
    return found


def _events(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f'events must be {{"name": Model}}, not {given!r}.')
    for name, model in given.items():
        check_event_name(name)
        adapter_of(model, f'events["{name}"]')
    return dict(given)


def _annotations(given: object) -> dict[str, bool]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"annotations must be a mapping, not {given!r}.")
    for key, value in given.items():
        if key not in _HINTS:
            raise TypeError(f"Unknown annotation {key!r}; there are {', '.join(_HINTS)}.")
        _flag(value, f"annotation {key}")
    return dict(given)


def _returned(func: Any) -> TypeAdapter[Any] | None:
    """The return annotation, where it says what the structured content looks like."""
    found = return_type_of(func)
    if not isinstance(found, type) or issubclass(found, ToolOutput):
        return None
    if not (issubclass(found, BaseModel) or is_dataclass(found) or is_typeddict(found)):
        return None
    try:
        return adapter_of(found, "The return annotation")
    except TypeError:  # only a hint: a type that pydantic does not know is no mistake here
        return None


def _output_schema(adapter: TypeAdapter[Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """The schema of the structured content, and whether the value is found in it under `result`.

    Values that are not always one of an object or a `result` (str, unions) have no schema: it would promise
    too much.
    """
    if adapter is None:
        return None, False
    try:
        schema = schema_of(adapter, "serialization")
    except (TypeError, ValueError, RuntimeError):
        return None, False
    target = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if target.get("type") == "object":
        return ({**target, "$defs": schema["$defs"]} if "$defs" in schema else schema), False
    if target.get("type") not in ("array", "number", "integer", "boolean"):
        return None, False
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return ({**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped), True
