"""What a tool takes: the JSON Schema that is shown, and the check that arguments fit it.

Of a function both come from its signature, by msgspec; a schema that is given is checked by jsonschema.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Union, cast

import docstring_parser
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Misfit", "Parameters", "parameters_of", "parameters_of_schema"]

_SAID = 1000  # characters of what does not fit


class Misfit(Exception):
    """Arguments, or a schema, or a signature, that are not what they have to be."""


class Parameters(Protocol):
    """What a tool takes."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of an object: each property is an argument."""
        ...

    @property
    def description(self) -> str:
        """What the function itself says of what it does, where it says it."""
        ...

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them. Raises Misfit."""
        ...


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Return what a function takes, by its signature and its docstring. Raises Misfit."""
    fields = [_field_of(each) for each in _signature_of(function).parameters.values()]
    try:
        struct = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        parts: dict[str, Any] = {}
        schema = _flat(msgspec.json.schema(struct, schema_hook=partial(_schema_of_model, parts)), parts)
    except TypeError as problem:
        raise Misfit(str(problem)) from problem
    said = docstring_parser.parse(inspect.getdoc(function) or "")
    described = {each.arg_name: each.description or "" for each in said.params}
    _add_words(schema, described, _signature_of(function))
    return _Signature(struct, schema, (said.description or "").strip())


def parameters_of_schema(schema: object) -> Parameters:
    """Return what a schema says, which is one of an object. Raises Misfit."""
    if not isinstance(schema, Mapping):
        raise Misfit(f"its schema has to be a JSON Schema, not {type(schema).__name__}")
    # Half as long to import as all else of the client: who gives no schemas does without it.
    from jsonschema import Draft202012Validator, exceptions
    from jsonschema.validators import validator_for
    from referencing import Registry

    try:
        plain: dict[str, Any] = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise Misfit(f"its schema is no JSON: {problem}") from problem
    kind = validator_for(plain, default=Draft202012Validator)
    try:
        kind.check_schema(plain)
    except exceptions.SchemaError as problem:
        raise Misfit(f"its schema is none: {problem.message[:_SAID]}") from problem
    if plain.get("type", "object") != "object":
        raise Misfit(f"its schema has to be one of an object, not of {plain['type']!r}")
    best_match: Any = cast("Any", exceptions).best_match
    return _Schema(kind(plain, registry=Registry()), best_match, {"type": "object", **plain})


class _Signature:
    def __init__(self, struct: type[msgspec.Struct], schema: dict[str, Any], description: str) -> None:
        self._struct = struct
        self.schema = schema
        self.description = description

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            read = msgspec.convert(arguments, self._struct, dec_hook=_read_model)
        except (msgspec.ValidationError, OverflowError) as problem:
            raise Misfit(str(problem)[:_SAID]) from problem
        given = ((name, getattr(read, name)) for name in self._struct.__struct_fields__)
        return {name: value for name, value in given if value is not msgspec.UNSET}


class _Schema:
    description = ""

    def __init__(self, validator: Any, best_match: Callable[..., Any], schema: dict[str, Any]) -> None:
        self._validator = validator
        self._best_match = best_match
        self.schema = schema

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        problem: Any = self._best_match(self._validator.iter_errors(arguments))
        if problem is not None:
            raise Misfit(f"{problem.message[:_SAID]} - at `{problem.json_path[:_SAID]}`")
        return arguments


def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError, AttributeError, SyntaxError) as problem:
        raise Misfit(f"its signature cannot be read: {problem}") from problem


def _field_of(parameter: inspect.Parameter) -> Any:
    if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
        raise Misfit(f"its parameter {parameter} has no name that an argument could be given by")
    kind: Any = Any if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.default is parameter.empty:
        return parameter.name, kind
    # Its own default is the function's: here it is only known that none was given.
    return parameter.name, Union[kind, msgspec.UnsetType], msgspec.UNSET  # noqa: UP007 -- kind is a value


def _schema_of_model(parts: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Return the schema of a class that tells its own, as those of pydantic do; what that refers to is added to `parts`."""
    if not hasattr(kind, "model_json_schema"):
        raise TypeError(f"{kind!r} has no form in JSON that is known")
    schema: dict[str, Any] = kind.model_json_schema()
    parts.update(schema.pop("$defs", {}))
    return schema


def _read_model(kind: Any, value: object) -> Any:
    return kind.model_validate(value)  # what it raises is a ValueError


def _flat(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the struct itself, as models and people expect it, with all that it refers to beside it."""
    others: dict[str, Any] = schema["$defs"] | parts
    own: dict[str, Any] = others.pop("Arguments")
    del own["title"]
    return {**own, "$defs": others} if others else own


def _add_words(schema: dict[str, Any], described: dict[str, str], signature: inspect.Signature) -> None:
    for name, shown in cast("dict[str, dict[str, Any]]", schema["properties"]).items():
        if described.get(name):
            shown.setdefault("description", described[name])
        default = signature.parameters[name].default
        if isinstance(default, str | int | float | bool) or default is None:
            shown["default"] = default
