"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.ufal.tables [--output outputs]

Reads <output>/{mini,ufal}/*/metrics.json and rewrites the block `ufal` of this folder's README.md.
What is missing stays as the page has it, or reads "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from experiments.rows import write_page

PAGE = Path(__file__).with_name("README.md")
SYSTEMS = ("UFAL", "UFAL compat")


def system(method: Mapping[str, Any]) -> str:
    return SYSTEMS[bool(method.get("compat"))]


main = partial(
    write_page, about=__doc__, page=PAGE, system=system, systems=SYSTEMS, paper="Ufal-Whisper"
)

if __name__ == "__main__":
    sys.exit(main())
