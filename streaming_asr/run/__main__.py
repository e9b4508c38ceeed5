"""`python -m streaming_asr.run`."""

import sys

from streaming_asr.run.command import main

sys.exit(main())
