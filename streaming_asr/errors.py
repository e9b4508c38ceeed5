"""The one error that is the user's to repair."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input from outside: its message gives the value, the rule and the remedy.

    The command line prints the message without a traceback and exits with status 2.
    """


class MissingWeights(UserError):
    """No such trained part of a method; in a sweep only the cells that need it fail."""
