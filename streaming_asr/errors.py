"""The one error that is the user's to repair."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input from outside: its message gives the value, the rule and the remedy.

    The command line prints the message without a traceback and exits with status 2.
    """


class MissingWeights(UserError):
    """No such trained part of a method; in a sweep only the cells that need it fail."""


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """Return `; did you mean X?`, or nothing where no name is near."""
    near = difflib.get_close_matches(wrong.lower(), list(right), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def check_one_of(known: Iterable[str], **settings: object) -> None:
    """Raise UserError for a setting whose value is none of `known`."""
    for key, value in settings.items():
        if value not in (names := list(known)):
            near = did_you_mean(str(value), names)
            raise UserError(f"{key}={value!r}: one of {', '.join(names)}{near}")
