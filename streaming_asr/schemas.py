"""Checks JSON by a msgspec Struct, and publishes the Struct as a JSON Schema.

A Struct is the only description of a kind of line or file: its fields, their types, bounds and
descriptions. A published schema file is written from it; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEPTH = 6  # no Struct describes values that lie deeper
_MESSAGE = re.compile(r"(?P<rule>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")


class Violation(NamedTuple):
    """One place that breaks a Struct."""

    place: tuple[str | int, ...]  # keys and indices, from the outermost; () is the whole value
    value: Any  # what lies there
    rule: str  # what holds there instead, as "must be `int` <= 5" or "lacks `utt`"

    @property
    def name(self) -> str:
        """Return the place as text, as `words[0][2]`; '' for the whole value."""
        keys = (f".{key}" if isinstance(key, str) else f"[{key}]" for key in self.place)
        return "".join(keys).removeprefix(".")

    def text(self, whole: str) -> str:
        """Return place, rule and value in a line; `whole` is what to call the whole value."""
        value = "" if self.rule.startswith(("lacks ", "must not ")) else f": {self.value!r:.60}"
        return f"{self.name or whole} {self.rule}{value}"


def violation(value: Any, kind: type) -> Violation | None:
    """Return the first place of a decoded JSON value that breaks a Struct, or None.

    Whole numbers may be written with a point, as JSON Schema has it: 3.0 is an integer.
    """
    whole = _whole(value, DEPTH)
    if (message := _refusal(whole, kind)) is None:
        return None
    parts = _MESSAGE.fullmatch(message)
    assert parts is not None
    place: list[str | int] = []
    inner, copy = value, whole
    for name, index in re.findall(r"\.(\w+)|\[([^]]*)\]", parts["path"] or ""):
        if index == "...":
            place.append(_refused_key(copy, whole, kind, message))
        else:
            place.append(name or int(index))
        inner, copy = inner[place[-1]], copy[place[-1]]
    rule = parts["rule"]
    if parts["key"]:
        keys = [key for key in inner if repr(key) in rule] or list(inner)
        return Violation(tuple(place), keys[0], f"must not have the key {keys[0]!r}")
    if field := _FIELD.fullmatch(rule):
        verb = "lacks" if field[1] == "missing required" else "must not have"
        rule = f"{verb} `{field[2]}`"
    elif rule.startswith("Invalid enum value"):
        rule = "must be one of " + ", ".join(map(repr, _options(kind, place)))
    elif rule.startswith("Expected "):
        rule = "must be " + rule.removeprefix("Expected ").partition(", got")[0]
    return Violation(tuple(place), inner, rule)


def schema_of(title: str, *kinds: type, **keywords: Any) -> dict[str, Any]:
    """Return the JSON Schema of a value that is of one of `kinds`; `keywords` are further ones."""
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    kind = {"anyOf": list(references)} if len(kinds) > 1 else references[0]
    return {"$schema": DIALECT, "title": title, **kind, **keywords, "$defs": definitions}


def _refusal(value: Any, kind: type) -> str | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _whole(value: Any, depth: int) -> Any:
    """Return a copy in which whole numbers are integers, as far down as Structs describe."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {key: _whole(inner, depth - 1) for key, inner in value.items()}
    return [_whole(inner, depth - 1) for inner in value] if isinstance(value, list) else value


def _refused_key(mapping: dict[str, Any], value: Any, kind: type, message: str) -> str:
    """Return the key of the entry of `mapping`, a part of `value`, that the message is about: the
    first with which only it is refused in the same words."""
    entries = dict(mapping)
    try:
        for key, inner in entries.items():
            mapping.clear()
            mapping[key] = inner
            if _refusal(value, kind) == message:
                return key
    finally:
        mapping.clear()
        mapping.update(entries)
    raise AssertionError(message)


@cache
def _published(kind: type) -> dict[str, Any]:
    return schema_of("", kind)


def _options(kind: type, place: list[str | int]) -> list[Any]:
    """Return the values that a Struct allows at a place."""
    schema = _published(kind)
    nodes = list(_branches(schema, schema))
    for key in place:
        nodes = [each for node in nodes for each in _branches(_inside(node, key), schema)]
    return [option for node in nodes for option in node.get("enum", ())]


def _branches(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the alternatives of a node of a JSON Schema."""
    if "$ref" in node:
        yield from _branches(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    elif "anyOf" in node:
        for each in node["anyOf"]:
            yield from _branches(each, schema)
    else:
        yield node


def _inside(node: Mapping[str, Any], key: str | int) -> Mapping[str, Any]:
    """Return the node of the values under a key or an index."""
    if isinstance(key, int):
        before = node.get("prefixItems", ())
        inner = before[key] if key < len(before) else node.get("items")
    else:
        inner = node.get("properties", {}).get(key, node.get("additionalProperties"))
    return inner if isinstance(inner, Mapping) else {}
