"""`python -m streaming_asr.align`."""

from streaming_asr.align import main

main()
