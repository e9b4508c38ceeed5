"""Speech of actors, unpacked from two adventure games that Debian ships: 6.4 hours in English.

`Beneath a Steel Sky` (Revolution Software, 1994) keeps 8-bit PCM packed by Rob Northen's
compression, which Debian's program `ancient` unpacks; `Flight of the Amazon Queen` (John Passfield
and Steven Stamatiadis, 1995) keeps MP3. Both at 11,025 Hz; both may be modified and passed on.
The forms of the files are those that ScummVM reads.
"""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.real.packages import AMAZON_QUEEN, ANCIENT, STEEL_SKY, obtain
from streaming_asr.errors import UserError

RATE = 11_025
SPEECH_FILES = range(50_000, 59_000)  # of Beneath a Steel Sky; the others are sounds and pictures
MP3_BYTES = 2_000  # of a second; what is shorter is no sentence
HEADER = 22  # bytes before the samples
TABLE_ENTRY = struct.Struct(">12sBII")  # name, bundle, offset, bytes


@dataclass(frozen=True)
class Line:
    """What one file holds: a sentence of one speaker, or a part of it.

    speaker: as near as the files' names tell: a scene of Beneath a Steel Sky has several.
    sentence: equal for the parts of one sentence, which follow each other.
    """

    name: str
    speaker: str
    sentence: str
    samples: np.ndarray  # (n,) float32 at RATE


def lines(root: Path) -> Iterator[Line]:
    """All lines of both games, in the order of their names; packages are kept below `root`."""
    yield from amazon_queen(obtain(AMAZON_QUEEN, root) / AMAZON_QUEEN.holds_at)
    yield from steel_sky(obtain(STEEL_SKY, root) / STEEL_SKY.holds_at, unpacker(root))


def amazon_queen(folder: Path) -> Iterator[Line]:
    """The lines of queen.1c: QTBL, six bytes of version, two of flags, one of compression (1 is
    MP3), the number of entries, then the entries. `020001P2.SB` is part 2 of what a person (P;
    Joe: J) says as line 0001 of scene 02."""
    data = (folder / "queen.1c").read_bytes()
    if data[:4] != b"QTBL" or data[12] != 1:
        raise UserError(f"{folder}/queen.1c: not the talking version with MP3; take {AMAZON_QUEEN}")
    (n,) = struct.unpack_from(">H", data, 13)
    entries = sorted(TABLE_ENTRY.iter_unpack(data[15 : 15 + n * TABLE_ENTRY.size]))
    for raw_name, _, offset, size in entries:
        name, _, kind = raw_name.rstrip(b"\0 ").decode("latin-1").partition(".")
        if kind == "SB" and size > MP3_BYTES:
            speaker = f"queen{name[:2]}{name[6:7]}"
            samples = decode_mp3(data[offset : offset + size])
            if samples is not None:
                yield Line(f"queen-{name}", speaker, name[:7], samples)


def decode_mp3(data: bytes) -> np.ndarray | None:
    """The samples of an MP3, (n,) float32; None where nothing can be decoded."""
    import av

    try:
        with av.open(io.BytesIO(data), format="mp3") as container:
            frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
    except av.FFmpegError:
        return None
    return np.concatenate(frames, axis=1).mean(0, dtype=np.float32) if frames else None


def steel_sky(folder: Path, unpack: list[str]) -> Iterator[Line]:
    """The lines of sky.dsk, whose index sky.dnr has eight bytes a file: number, offset (in units
    of 16 bytes where its top bit is set), size and flags. `unpack`: the command of `unpacker`."""
    index, data = (folder / "sky.dnr").read_bytes(), (folder / "sky.dsk").read_bytes()
    packed: dict[int, bytes] = {}
    for at in range(4, len(index) - 7, 8):
        number = int.from_bytes(index[at : at + 2], "little")
        offset = int.from_bytes(index[at + 2 : at + 5], "little")
        size = int.from_bytes(index[at + 5 : at + 8], "little") & 0x3FFFFF
        start = (offset & 0x7FFFFF) << 4 if offset >> 23 else offset
        file = data[start + HEADER : start + size]
        if number in SPEECH_FILES and file.startswith(b"RNC"):
            packed[number] = file
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(4) as pool:

        def unpacked(number: int) -> bytes:
            packed_file, file = Path(scratch, f"{number}.rnc"), Path(scratch, str(number))
            packed_file.write_bytes(packed[number])
            command = [*unpack, "decompress", str(packed_file), str(file)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise UserError(f"{folder}/sky.dsk, file {number}: not unpacked ({done.stderr})")
            return file.read_bytes()

        numbers = sorted(packed)
        for number, content in zip(numbers, pool.map(unpacked, numbers), strict=True):
            samples = np.frombuffer(content, np.uint8).astype(np.float32) / 128 - 1
            yield Line(f"sky-{number}", f"sky{number // 16}", str(number), samples)


def unpacker(root: Path) -> list[str]:
    """The command `ancient`: the one installed, else Debian's for amd64, kept below `root`."""
    installed = shutil.which("ancient")
    if installed:
        return [installed]
    program, library = (obtain(package, root) / package.holds_at for package in ANCIENT)
    path = f"{library}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}"
    return ["env", f"LD_LIBRARY_PATH={path}", str(program)]
