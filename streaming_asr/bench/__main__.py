"""`python -m streaming_asr.bench`."""

import sys

from streaming_asr.bench import main

sys.exit(main())
