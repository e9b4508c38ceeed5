"""Checks JSON by a msgspec Struct, and publishes the Struct as a JSON Schema.

A Struct is the only description of a kind of line or file: its fields, their types, bounds and
descriptions. A published schema file is written from it; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEPTH = 6  # no Struct describes values that lie deeper
VERBS = {
    "Expected": "must be",
    "Object missing required field": "lacks",
    "Object contains unknown field": "must not have",
}
"""What msgspec's messages begin with, in the words of a rule."""


class Violation(NamedTuple):
    """One place of a value that does not fit a Struct."""

    place: tuple[str | int, ...]  # keys and indices, from the outermost; () is the whole value
    value: Any  # at that place
    rule: str  # that it breaks, as "must be `int` <= 5" or "lacks `utt`"

    @property
    def name(self) -> str:
        """Return the place as text, as `words[0][2]`; '' for the whole value."""
        keys = (f".{key}" if isinstance(key, str) else f"[{key}]" for key in self.place)
        return "".join(keys).removeprefix(".")

    def text(self, whole: str) -> str:
        """Return place, rule and value in one line; `whole` names the whole value."""
        value = "" if self.rule.startswith(("lacks ", "must not ")) else f": {self.value!r:.60}"
        return f"{self.name or whole} {self.rule}{value}"


def schema_of(title: str, *kinds: type, **keywords: Any) -> dict[str, Any]:
    """Return the JSON Schema of a value of one of the Structs `kinds`. keywords: further keywords
    of the schema."""
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    kind = {"anyOf": list(references)} if len(kinds) > 1 else references[0]
    return {"$schema": DIALECT, "title": title, **kind, **keywords, "$defs": definitions}


def violation(value: Any, kind: Any, place: tuple[str | int, ...] = ()) -> Violation | None:
    """Return the first place of a decoded JSON value that does not fit `kind`, a Struct, or None.

    Whole numbers may be written with a point, as in JSON Schema: 3.0 is an integer. place: that of
    the value in an outer one.
    """
    try:
        msgspec.convert(value, kind)
        return None
    except msgspec.ValidationError:  # rare, so that most values are not copied
        pass
    try:
        msgspec.convert(_with_integers(value, DEPTH), kind)
        return None
    except msgspec.ValidationError as error:
        message = str(error)
    for key, inner, inner_kind in _parts(value, kind):
        if (fault := violation(inner, inner_kind, (*place, key))) is not None:
            return fault
    for member in _members(kind):
        if get_origin(member) is dict and isinstance(value, dict):
            for key in value:
                if violation(key, get_args(member)[0], ()) is not None:
                    return Violation(place, key, f"must not have the key {key!r}")
    options = [o for m in _members(kind) if get_origin(m) is Literal for o in get_args(m)]
    if options and message.startswith("Invalid enum value"):
        return Violation(place, value, "must be one of " + ", ".join(map(repr, sorted(options))))
    rule = message.partition(", got")[0]
    for beginning, verb in VERBS.items():
        rule = rule.replace(beginning, verb, 1)
    return Violation(place, value, rule)


def _members(kind: Any) -> Iterator[Any]:
    """Yield the types of which a type is the union, or itself, without annotations."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _members(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for each in get_args(kind):
            yield from _members(each)
    else:
        yield kind


def _parts(value: Any, kind: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield (key or index, value, type) of each part of a JSON value that `kind` describes."""
    for member in _members(kind):
        origin, arguments = get_origin(member) or member, get_args(member)
        if isinstance(value, dict):
            if origin is dict:
                yield from ((key, inner, arguments[1]) for key, inner in value.items())
            elif isinstance(origin, type) and issubclass(origin, msgspec.Struct):
                fields = msgspec.structs.fields(origin)
                yield from ((f.name, value[f.name], f.type) for f in fields if f.name in value)
        elif isinstance(value, list) and origin is list:
            yield from ((i, inner, arguments[0]) for i, inner in enumerate(value))
        elif isinstance(value, list) and origin is tuple and len(value) == len(arguments):
            yield from zip(range(len(value)), value, arguments, strict=True)


def _with_integers(value: Any, depth: int) -> Any:
    """Return a copy of a JSON value in which whole floats are integers, `depth` levels down."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: _with_integers(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_integers(inner, depth - 1) for inner in value]
    return value
