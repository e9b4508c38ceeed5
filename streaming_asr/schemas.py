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


def violation(value: Any, kind: type) -> Violation | None:
    """Return the first place of a decoded JSON value that does not fit the Struct `kind`, or None.

    The place and the rule are read from msgspec's message, as "Expected `int` - at `$.words[0]`".
    Whole numbers may be written with a point, as in JSON Schema: 3.0 is an integer.
    """
    converted = _with_integers(value, DEPTH)
    if (message := _refusal(converted, kind)) is None:
        return None
    parts = _MESSAGE.fullmatch(message)
    assert parts is not None
    place: list[str | int] = []
    inner, inner_converted = value, converted  # what is at `place` in both
    for name, index in re.findall(r"\.(\w+)|\[([^]]*)\]", parts["path"] or ""):
        if index == "...":  # some key of a mapping: the message does not name it
            key: str | int = _refused_key(inner_converted, converted, kind, message)
        else:
            key = name or int(index)
        place.append(key)
        inner, inner_converted = inner[key], inner_converted[key]
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
    """Return the JSON Schema of a value of one of the Structs `kinds`. keywords: further keywords
    of the schema."""
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    kind = {"anyOf": list(references)} if len(kinds) > 1 else references[0]
    return {"$schema": DIALECT, "title": title, **kind, **keywords, "$defs": definitions}


def _refusal(value: Any, kind: type) -> str | None:
    """Return msgspec's message about a value that does not fit, or None."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return None


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


def _refused_key(mapping: dict[str, Any], value: Any, kind: type, message: str) -> str:
    """Return the key of the entry of `mapping`, a part of `value`, that msgspec's message is about.

    Each entry is tried as the only one of `mapping`. The first for which msgspec has the same
    message is the one. `mapping` is changed for that, and restored at the end.
    """
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
    """Return the values that a Struct allows at a place, where these are listed (an enum)."""
    schema = _published(kind)
    nodes = list(_alternatives(schema, schema))
    for key in place:
        children = [_child(node, key) for node in nodes]
        nodes = [node for child in children for node in _alternatives(child, schema)]
    return [option for node in nodes for option in node.get("enum", ())]


def _alternatives(
    node: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes of which a node of a JSON Schema is the union (`anyOf`), or itself, with
    references resolved."""
    if "$ref" in node:
        yield from _alternatives(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    elif "anyOf" in node:
        for alternative in node["anyOf"]:
            yield from _alternatives(alternative, schema)
    else:
        yield node


def _child(node: Mapping[str, Any], key: str | int) -> Mapping[str, Any]:
    """Return the schema of the value at a key or an index of a node's value; {} where the node
    states nothing about it."""
    if isinstance(key, int):
        first_items = node.get("prefixItems", ())
        child = first_items[key] if key < len(first_items) else node.get("items")
    else:
        child = node.get("properties", {}).get(key, node.get("additionalProperties"))
    return child if isinstance(child, Mapping) else {}
