"""Checks a configuration against the constructor it is for, before the constructor runs."""

from __future__ import annotations

import inspect
import logging
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from streaming_asr.errors import UserError, did_you_mean


def check_arguments(node: Any) -> Any:
    """Check the settings below every `_target_` of `node` against its constructor, the inner ones
    first. Return the node, with a number turned into text if the constructor takes text, as of
    `version=2`.

    Raises UserError for a target that cannot be imported, a setting that it does not have, and a
    value that is not of the type that its constructor states. Values are not checked against
    classes other than Python's own, nor if the annotation cannot be evaluated.
    """
    if isinstance(node, list):
        return [check_arguments(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    node = {key: check_arguments(value) for key, value in node.items()}
    if "_target_" not in node:
        return node
    target = target_of(node["_target_"])
    try:
        parameters = inspect.signature(target).parameters
    except ValueError:  # written in C, without one
        return node
    takes_any_key = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key, value in node.items():
        if key.startswith("_") and key.endswith("_"):
            continue  # Hydra's own
        if key not in parameters:
            if takes_any_key:
                continue
            raise UserError(
                f"{key}={value}: {target.__name__} has no such setting"
                f"{did_you_mean(key, parameters)}; it has {', '.join(parameters)}"
            )
        if value is None and parameters[key].default in (None, ""):
            continue  # as if it were left out
        stated = parameters[key].annotation
        hint = _hint(stated, target)
        if _is_number(value) and not _fits(value, hint):
            node[key] = str(value)
        if not _fits(node[key], hint):
            raise UserError(f"{key}={value}: must be {stated}, as {target.__name__} states")
    return node


def target_of(path: Any) -> Callable[..., Any]:
    """Return the class or function that a `_target_` names. Raises UserError for anything else, for
    private names, and for what Hydra's target policy refuses, as os.system."""
    # Hydra writes several lines of its own before it raises.
    logging.getLogger("hydra.utils").disabled = True
    try:
        if str(path).rpartition(".")[2].startswith("_"):
            raise TypeError("its name is private")
        # `get_object` itself has no policy, as its documentation says.
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


def _hint(stated: Any, target: Callable[..., Any]) -> Any:
    """Return the type of an annotation; Any without one and if it cannot be evaluated.

    stated: the annotation, which is a text under `from __future__ import annotations`; it is
    evaluated with the names of the module that defines `target`.
    """
    if not isinstance(stated, str):
        return Any if stated is inspect.Parameter.empty else stated
    constructor: Any = target
    function = inspect.unwrap(constructor.__init__ if isinstance(target, type) else constructor)
    names = vars(sys.modules.get(getattr(function, "__module__", ""), types))
    try:
        return eval(stated, dict(names))  # written in the program that is about to run
    except Exception:
        return Any


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of a configuration is of the type `hint`; True for types that are not
    checked."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if hint in (None, type(None)):
        return value is None
    if isinstance(value, Mapping):  # another object's node, or a plain mapping
        return hint not in (int, float, str, bool)
    if hint is float:
        return _is_number(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    if origin in (list, tuple, Sequence):
        arguments = [argument for argument in get_args(hint) if argument is not Ellipsis]
        item_hint = arguments[0] if len(arguments) == 1 else Any
        return isinstance(value, list | tuple) and all(_fits(item, item_hint) for item in value)
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
