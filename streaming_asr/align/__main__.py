"""`python -m streaming_asr.align`."""

import sys

from streaming_asr.align import main

sys.exit(main())
