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
    """No such trained part of a method; in a sweep only the cells that need it fail."""


class Unpaired(UserError):
    """A method that does not run such a model; a sweep over both leaves the pair out."""


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """Return `; did you mean X?`, or nothing where no name is near."""
    near = difflib.get_close_matches(wrong.lower(), list(right), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def parts_of_url(url: str, what: str) -> SplitResult:
    """Return the parts of a URL. Raises UserError where it has no form of one; `what`: its setting,
    as method.url=ws://x."""
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
    """Raise UserError for a setting whose value is none of `known`."""
    for key, value in settings.items():
        if value not in (names := list(choices)):
            near = did_you_mean(str(value), names)
            raise UserError(f"{key}={value!r}: one of {', '.join(names)}{near}")


def check_range(
    least: float,
    most: float = math.inf,
    *,
    above: bool = False,
    **settings: float | Sequence[float] | None,
) -> None:
    """Raise UserError for a number, or one of several, that is below `least` or beyond `most`.

    above: `least` itself is out of range too. None is no number and passes.
    """
    for key, value in settings.items():
        numbers = value if isinstance(value, Sequence) else [] if value is None else [value]
        # A NaN compares with nothing: asked this way round it is refused.
        if not all(least <= n <= most and not (above and n == least) for n in numbers):
            rule = f"more than {least:g}" if above else f"{least:g} or more"
            raise UserError(
                f"{key}={value}: {rule}{f', {most:g} at most' if most < math.inf else ''}"
            )


def unnameable(error: BaseException) -> UserError | None:
    """Return the refusal of a path that the system cannot hold; None for another error."""
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return UserError("a path holds a NUL character, which no file's name has; correct it")
    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        return None
    return UserError(
        f"{str(error.filename)[:100]}...: the system takes no name of that length; name a shorter "
        "path, whose parts have at most 255 bytes"
    )
