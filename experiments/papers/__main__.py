"""A paper's tables beside our results: `python -m experiments.papers whisperrt outputs/table1`."""

from __future__ import annotations

import sys

from experiments.papers.compare import main

sys.exit(main())
