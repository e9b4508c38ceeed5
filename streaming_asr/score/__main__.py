"""python -m streaming_asr.score"""

from __future__ import annotations

import sys

from streaming_asr.score import main

sys.exit(main())
