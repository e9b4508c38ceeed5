"""Where the tests and the project lie, and how long a test waits."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent  # modules that tests import by their names
TESTS = SUPPORT.parent
ROOT = TESTS.parent
FIXTURES = TESTS / "fixtures"

HANG_S = 1200  # against what hangs, never against what is slow: machines are busy
