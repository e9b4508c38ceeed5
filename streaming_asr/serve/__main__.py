"""python -m streaming_asr.serve"""

from __future__ import annotations

import sys

from streaming_asr.serve import main

sys.exit(main())
