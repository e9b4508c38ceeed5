"""`python -m streaming_asr.score`."""

import sys

from streaming_asr.score.command import main

sys.exit(main())
