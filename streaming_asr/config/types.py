"""Checks a configuration against the constructor it is for, before the constructor runs."""

from __future__ import annotations

import inspect
import logging
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from hydra.utils import get_object

from streaming_asr.errors import UserError, did_you_mean


def check_arguments(node: Any) -> None:
    """Look at every `_target_` in `node`, the inner ones first.

    Raises UserError for a target that cannot be imported, a setting that it has not, and a value
    that is not of the type its constructor states. Types that are classes of a program's own, and
    those that only a type checker knows, are taken as they come.
    """
    for value in _values(node):
        check_arguments(value)
    if not isinstance(node, Mapping) or "_target_" not in node:
        return
    target = target_of(node["_target_"])
    try:
        parameters = inspect.signature(target).parameters
    except ValueError:  # written in C, without one
        return
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key, value in node.items():
        if key.startswith("_") and key.endswith("_"):
            continue  # Hydra's own
        if key not in parameters:
            if open_ended:
                continue
            raise UserError(
                f"{key}={value}: {target.__name__} has no such setting"
                f"{did_you_mean(key, parameters)}; it has {', '.join(parameters)}"
            )
        if value is None and parameters[key].default in (None, ""):
            continue  # as if it were left out
        stated = parameters[key].annotation
        if not _fits(value, _hint(stated, target)):
            raise UserError(f"{key}={value}: must be {stated}, as {target.__name__} states")


def target_of(path: Any) -> Callable[..., Any]:
    """Return the class or function that a `_target_` names. Raises UserError for anything else."""
    # Hydra writes several lines of its own before it raises.
    logging.getLogger("hydra.utils").disabled = True
    try:
        target: Callable[..., Any] = get_object(path)
        if not callable(target) or getattr(target, "__module__", None) == "builtins":
            raise TypeError("neither a class nor a function of a program")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        reason: BaseException = error
        while isinstance(reason.__cause__, Exception):
            reason = reason.__cause__
        raise UserError(
            f"_target_={path}: cannot be built ({' '.join(str(reason).split())}); give "
            "module.Class of what is installed, or of a file whose folder PYTHONPATH names"
        ) from error
    return target


def _values(node: Any) -> Sequence[Any]:
    if isinstance(node, Mapping):
        return list(node.values())
    return node if isinstance(node, list) else ()


def _hint(stated: Any, target: Callable[..., Any]) -> Any:
    """Return the type that an annotation names; Any where it cannot be told."""
    if not isinstance(stated, str):
        return Any if stated is inspect.Parameter.empty else stated
    parameters: Any = target
    owner = inspect.unwrap(parameters.__init__ if isinstance(target, type) else parameters)
    names = vars(sys.modules.get(getattr(owner, "__module__", ""), types))
    try:
        return eval(stated, dict(names))  # written in the program that is about to run
    except Exception:
        return Any


def _fits(value: Any, hint: Any) -> bool:
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
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool)
    if hint is str:  # `version=2` on a command line is a number
        return isinstance(value, str | int | float)
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple)
    return True
