"""`python -m streaming_asr X ...` is `streaming-asr X ...`."""

import sys

from streaming_asr.commands.cli import main

sys.exit(main())
