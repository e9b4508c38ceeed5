"""A paper's tables and our results: `python -m experiments.papers whisperrt outputs/table1`."""

from __future__ import annotations

import sys

from experiments.papers.compare import main

sys.exit(main())
