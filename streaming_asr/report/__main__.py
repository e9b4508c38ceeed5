"""python -m streaming_asr.report"""

import sys

from streaming_asr.report import main

sys.exit(main())
