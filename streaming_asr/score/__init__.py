"""Scores event logs; the command line is `streaming_asr.score.command`."""

from streaming_asr.score.folder import find_cells, score_folder

__all__ = ["find_cells", "score_folder"]
