"""The table of other programs next to ours, on the clock of audio, which a busy machine leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.tables import Cells, Figure, Page, Table, find
from streaming_asr.score.compare import compare, read_runs
from streaming_asr.score.compare import table as differences
from streaming_asr.score.results import Result

OURS = ("offline", "whisperrt", "hush_word", "simul_whisper", "ufal")
NEAREST = {  # the method of ours whose policy is nearest
    "whisper_streaming": "ufal",
    "whisperlivekit, local agreement": "ufal",
    "whisperlivekit, SimulStreaming": "simul_whisper",
    "simulstreaming": "simul_whisper",
    "simulstream": "hush_word",
    "whisper_cpp": "hush_word",
    "pieces": "hush_word",
}
ROWS = {
    **{name: {"method": name} for name in OURS},
    **{name: {"method": name} for name in NEAREST if "," not in name},
    "whisperlivekit, local agreement": {"method": "whisperlivekit", "policy": "localagreement"},
    "whisperlivekit, SimulStreaming": {"method": "whisperlivekit", "policy": "simulstreaming"},
    "pocketsphinx": {"method": "pocketsphinx"},
}
COLUMNS = {
    "WER %": "wer",
    "WER with marks and case %": "wer_formatted",
    "final after p50 s": "word_latency_committed_p50_cu_s",
    "final after p90 s": "word_latency_committed_p90_cu_s",
    "visible after p50 s": "word_latency_shown_p50_cu_s",
    "words rewritten per word, marks left out": "light_erasure",
    "CPU s per s": "rtf_cpu",
}
OVER = "WER over the nearest of ours"


def over_nearest(cell: Result, cells: Sequence[Result]) -> Mapping[str, Figure | None]:
    """The paired difference in WER to the nearest method of ours, with its interval."""
    name = next((name for name, what in ROWS.items() if find([cell], **what)), "")
    other = find(cells, **ROWS[NEAREST[name]]) if name in NEAREST else None
    if other is None:
        return {}
    comparisons = compare(read_runs([str(other.folder), str(cell.folder)]))
    (row,) = (each for each in differences(comparisons) if each["metric"] == "wer")
    interval = row.get("interval")
    return {OVER: [row["difference"], *interval] if interval else row.get("difference")}


PAGE = Page(
    [Cells("others", ["others"], [({"": n}, [x]) for n, x in ROWS.items()], COLUMNS, over_nearest)],
    [Table("others", {**dict.fromkeys(COLUMNS, ".2f"), "WER %": ".1f", OVER: "+.1f"})],
)
