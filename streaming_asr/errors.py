"""The one error that is the user's to repair."""

from __future__ import annotations

import difflib
import errno
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib.parse import SplitResult


class UserError(ValueError):
    """Bad input from outside: its message gives the value, the rule and the remedy.

    The command line prints the message without a traceback and exits with status 2.
    """


class MissingWeights(UserError):
    """The trained part of a method is missing; in a sweep only the cells that need it fail."""


class Unpaired(UserError):
    """The method cannot run with the model; a sweep over both leaves the pair out."""


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """Return `; did you mean X?` with the name in `right` that is most like `wrong`, or "" where
    none is like it."""
    near = difflib.get_close_matches(wrong.lower(), list(right), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def parts_of_url(url: str, what: str) -> SplitResult:
    """Return the parts of a URL. Raises UserError, which begins with `what` (the setting, as
    method.url=ws://x), where it is malformed."""
    from urllib.parse import urlsplit

    try:
        address = urlsplit(url)
        if address.port == 0:
            raise ValueError("port 0 is none")
        if any(character.isspace() for character in address.netloc):
            raise ValueError("a host's name has no blank")
    except ValueError as error:
        raise UserError(f"{what}: is no address ({error}); correct it") from error
    return address


def check_one_of(choices: Iterable[str], **settings: object) -> None:
    """Raise UserError for a setting (name=value) whose value is none of `choices`."""
    names = list(choices)
    for key, value in settings.items():
        if value not in names:
            hint = did_you_mean(str(value), names)
            raise UserError(f"{key}={value!r}: one of {', '.join(names)}{hint}")


def check_range(
    least: float,
    most: float = math.inf,
    *,
    above: bool = False,
    **settings: float | Sequence[float] | None,
) -> None:
    """Raise UserError for a setting (name=number or numbers) that is below `least` or above `most`.

    above: `least` itself is refused, too. A value of None is not checked.
    """
    for key, value in settings.items():
        if value is None:
            continue
        numbers = value if isinstance(value, Sequence) else [value]
        # Every comparison with NaN is false, so NaN is refused as well.
        if not all(least < n <= most or (n == least and not above) for n in numbers):
            rule = f"more than {least:g}" if above else f"{least:g} or more"
            limit = f", {most:g} at most" if most < math.inf else ""
            raise UserError(f"{key}={value}: {rule}{limit}")


def unnameable(error: BaseException) -> UserError | None:
    """Return the UserError for an error of the system about a path that no file can have; None for
    any other error."""
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return UserError("a path holds a NUL character, which no file's name has; correct it")
    if isinstance(error, RuntimeError) and str(error).startswith("Could not determine home"):
        return UserError("a path begins with ~ and a name that is no user's; write it in full")
    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        return None
    return UserError(
        f"{str(error.filename)[:100]}...: the system takes no name of that length; name a shorter "
        "path, whose parts have at most 255 bytes"
    )
