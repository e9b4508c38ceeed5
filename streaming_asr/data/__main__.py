"""`python -m streaming_asr.data`."""

import sys

from streaming_asr.data_command import main

sys.exit(main())
