"""The tables of WhisperRT's experiments on mini, from the results of the sweeps.

    python -m experiments.mini.tables [--output outputs]

Reads <output>/{table1,table3}/*/metrics.json and rewrites the blocks of this folder's papers.md.
What is missing stays as the page has it, or reads "not run".
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from experiments.tables import read, write
from experiments.whisperrt.tables import table1, table3

PAGE = Path(__file__).with_name("papers.md")


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    first, third = read(output / "table1"), read(output / "table3")
    # Table 1 ran a fixed adapter where it found one, so its cells serve here too.
    return {"table1": table1(first), "table3": table3([*third, *first])}


main = partial(write, about=__doc__, page=PAGE, blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
