"""Turn event logs into metrics; needs neither the model nor the audio.

    python -m streaming_asr.score outputs/default

A log can be scored again whenever a metric changes: the run is not repeated.
"""

from __future__ import annotations

from streaming_asr.score.command import main
from streaming_asr.score.folder import find_cells, score_folder

__all__ = ["find_cells", "main", "score_folder"]
