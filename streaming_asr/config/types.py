"""Checks a configuration against the constructor it is for, before the constructor runs."""

from __future__ import annotations

import inspect
import logging
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from streaming_asr.errors import UserError, did_you_mean

WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "null",
}
PLAIN = (*WORDS, Any)


def check_arguments(node: Any, name: str = "", *, extra: Sequence[str] | None = None) -> Any:
    """Check the settings below every `_target_` of `node` against its constructor, the inner ones
    first. Return the node, with a number turned into text if the constructor takes text, as of
    `version=2`.

    name: of the node in messages, as `data`. given: arguments that the node need not have; without
    it none is missed.
    Raises UserError for a target that cannot be imported, a setting that it does not have or that
    is missing, and a value that is not of the type that its constructor states. Values are not
    checked against classes other than Python's own, nor if the annotation cannot be evaluated.
    """
    prefix = f"{name}." if name else ""
    if isinstance(node, list):
        return [check_arguments(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    node = {key: check_arguments(value, f"{prefix}{key}") for key, value in node.items()}
    if "_target_" not in node:
        return node
    target = target_of(node["_target_"])
    try:
        parameters = inspect.signature(target).parameters
    except ValueError:  # written in C, without one
        return node
    hints = _hints(target)
    takes_any_key = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key, value in node.items():
        if key == "_target_":
            continue
        if key.startswith("_") and key.endswith("_"):
            raise UserError(f"{prefix}{key}={value}: is a key of Hydra's own; leave it out")
        if key not in parameters:
            if takes_any_key:
                continue
            raise UserError(
                f"{prefix}{key}={value}: {target.__name__} has no such setting"
                f"{did_you_mean(key, parameters)}; it has {', '.join(parameters)}"
            )
        if value is None and parameters[key].default in (None, ""):
            continue  # as if it were left out
        hint = hints.get(key, Any)
        if _is_number(value) and not _fits(value, hint):
            node[key] = str(value)
        if not _fits(node[key], hint):
            raise UserError(f"{prefix}{key}={value}: must be {_in_words(hint)}")
    for key, parameter in parameters.items() if extra is not None else ():
        is_one = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_one and parameter.default is parameter.empty and key not in {*node, *(extra or ())}:
            raise UserError(
                f"{prefix}{key}: {target.__name__} needs it, and it is not set; give {prefix}{key}="
            )
    return node


def target_of(path: Any) -> Callable[..., Any]:
    """Return the class or function that a `_target_` names. Raises UserError for anything else, for
    private names, and for what Hydra's target policy refuses, as os.system."""
    # Hydra writes several lines of its own before it raises.
    logging.getLogger("hydra.utils").disabled = True
    try:
        if str(path).rpartition(".")[2].startswith("_"):
            raise TypeError("its name is private")
        # `get_object` itself has no policy, as its documentation states.
        lookup = {"_target_": "hydra.utils.get_object", "path": path}
        target: Callable[..., Any] = instantiate(lookup)
        if not callable(target) or getattr(target, "__module__", None) == "builtins":
            raise TypeError("neither a class nor a function of a program")
    except (InstantiationException, TypeError) as error:
        reason: BaseException = error
        while isinstance(reason.__cause__, Exception):
            reason = reason.__cause__
        raise UserError(
            f"_target_={path}: cannot be built ({' '.join(str(reason).split())}); give "
            "module.Class of what is installed, or of a file whose folder PYTHONPATH names"
        ) from error
    return target


class _Names(dict[str, Any]):
    """The names of a module; those that it imports for type checkers only are Any."""

    def __missing__(self, name: str) -> Any:
        return Any


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a constructor's arguments; {} if an annotation cannot be evaluated."""
    constructor: Any = target
    function = inspect.unwrap(constructor.__init__ if isinstance(target, type) else constructor)
    names = getattr(function, "__globals__", {})
    try:
        return get_type_hints(function, localns=_Names(names | names.get("__builtins__", {})))
    except Exception:
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of a configuration is of the type `hint`; True for types that are not
    checked."""
    if not _is_plain(hint):  # a mapping may be the node of another object
        return True
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


def _is_plain(hint: Any) -> bool:
    """Return whether a type is Python's own, as `Sequence[float] | None`."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType, list, tuple, Sequence):
        return all(each is Ellipsis or _is_plain(each) for each in get_args(hint))
    return origin is Literal or hint in PLAIN


def _in_words(hint: Any) -> str:
    """Return what a plain type takes, as `a number or null`."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(_in_words, get_args(hint)))
    return WORDS.get(hint, "a list")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
