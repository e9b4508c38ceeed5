"""Other tools' logs, in and out: a rival's run is scored by the same code (docs/formats.md).

A format is a module. `read(path)` returns the recordings and what the file knows of them (of
metrics.table.EVERYTHING), `write(log, folder)` the files written. Both of whisper_online also take
`comp_unaware`, since its emission times may be those of either clock.
"""

from streaming_asr.score.formats import simuleval, simulstream, whisper_online

FORMATS = {"simuleval": simuleval, "simulstream": simulstream, "whisper_online": whisper_online}
