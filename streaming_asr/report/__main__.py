"""python -m streaming_asr.report"""

from __future__ import annotations

import sys

from streaming_asr.report import main

sys.exit(main())
