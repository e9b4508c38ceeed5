"""`python -m streaming_asr.data`."""

import sys

from streaming_asr.data.command import main

sys.exit(main())
