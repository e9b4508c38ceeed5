"""Checks the first bytes of a recording and the sizes in its headers, before it is decoded.

A file's content decides what it is, never its name.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from streaming_asr.errors import UserError
from streaming_asr.files import check_file

SHORT_S = 0.1  # a recording may be so much shorter or longer than its header states
TEXT_BYTES = 512  # enough to distinguish a text from a recording
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+[^/]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_FLAC = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")  # the first block of a FLAC has 34 bytes
_APPLE_DOUBLE = b"\0\5\x16\7"
# A later part of a WebM begins with a cluster, or with a block of track 1 in one; of an MP4, with a
# fragment.
_PART = re.compile(
    rb"\x1f\x43\xb6\x75|"
    rb"\xa3(?:[\x80-\xff]|[\x40-\x7f].|[\x20-\x3f]..|[\x10-\x1f]...)\x81..[\x00\x80]|"
    rb".{4}(?:moof|styp|sidx)",
    re.DOTALL,
)
RAW = {
    **dict.fromkeys((".pcm", ".raw", ".s16", ".sw", ".s16le"), "s16le (16-bit integers)"),
    **dict.fromkeys((".alaw", ".al", ".la", ".g711a"), "alaw"),
    **dict.fromkeys((".ulaw", ".ul", ".lu", ".mulaw", ".mu", ".g711u"), "mulaw"),
    ".f32": "f32le (floats)",
}  # FFmpeg's names
_SEGMENT = b"\x18\x53\x80\x67"  # the element of a Matroska file that holds all others
_BITS_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_OGG_HEADER_BYTES = 27
_LIVE_PAGES = 20  # a client of a live stream gets its header, and then pages from here on
OGG_PAGE_BYTES = 27 + 255 + 255 * 255  # at most

log = logging.getLogger(__name__)


def check_recording(path: str | Path) -> None:
    """Raise UserError for what is no recording: a URL, a missing file, a pipe or an empty file."""
    check_no_url(path)
    check_file(path)
    if os.path.isdir(path):
        raise UserError(f"{path}: is a folder, not a recording; rename it.")
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such audio file; correct the path.")
    try:
        with Path(path).open("rb") as file:
            begin = file.read(1)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); change its permissions"
        ) from error
    if not begin:
        raise UserError(f"{path}: holds 0 bytes; record or export it again")


def check_begin(path: str | Path, begin: bytes) -> None:
    """Raise UserError where the first bytes show that a file holds no whole recording."""
    if _is_text(begin[:TEXT_BYTES]):
        raise UserError(
            f"{path}: not readable as audio (it holds text); of a playlist, name the recordings "
            "that it lists"
        )
    if begin.startswith(_APPLE_DOUBLE):
        raise UserError(
            f"{path}: holds what macOS notes about another file, and no sound; give that file"
        )
    if _PART.match(begin) and b"moov" not in begin:
        raise UserError(
            f"{path}: is a part of a live recording (MediaRecorder) without the first part, which "
            "holds the header; join all parts in their order and give that file"
        )


def check_raw(path: str | Path) -> None:
    """Raise UserError where the name of a file shows that it holds samples without a header."""
    if (form := RAW.get(Path(path).suffix.lower())) is not None:
        raise UserError(
            f"{path}: holds samples without a header, so their rate is not in it, and this name is "
            f"usual for {form}; make a WAV of it with the rate that you know, as in: ffmpeg -f "
            f"{form.split()[0]} -ar 8000 -ac 1 -i {Path(path).name} talk.wav"
        )


def check_no_url(name: str | Path) -> None:
    """Raise UserError for a URL."""
    if is_url(name):
        raise UserError(f"{name}: is a URL; download the recording and name the file")


def is_url(name: str | Path) -> bool:
    """Return whether a name is a URL and no file; also one that went through Path(), which makes
    one slash of two."""
    return _URL.match(str(name)) is not None and not os.path.exists(name)


def _is_text(begin: bytes) -> bool:
    """Return whether the first bytes of a file, at most TEXT_BYTES, are UTF-8 text."""
    if _CONTROL.search(begin):
        return False
    try:
        begin.decode()
    except UnicodeDecodeError as error:
        # A character has at most 4 bytes, and the last one may be cut in two.
        return len(begin) == TEXT_BYTES and error.start > TEXT_BYTES - 4
    return True


def is_counted(path: str | Path) -> bool:
    """Return whether the header of a recording counts all of its samples, if libsndfile reads it.

    It does not where several FLACs are joined in one file, where an Ogg has several streams, and
    where a WAV has samples after the size that its header states. Raises UserError for an Ogg that
    is cut off or damaged, and for a WAV with several formats or sounds.
    """
    with Path(path).open("rb", buffering=0) as file:
        _check_chunks(file, path)
        if wav_goes_on(file):
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] == b"OggS":
                return _is_one_ogg(content, path)
            # A tag with a picture may precede the first FLAC.
            first_flac = _FLAC.search(content, 0, 2**20)
            return first_flac is None or _FLAC.search(content, first_flac.end()) is None


# -- Ogg (RFC 3533) -------------------------------------------------------------------------


def _is_one_ogg(content: mmap.mmap, path: str | Path) -> bool:
    """Return whether an Ogg holds one stream. Raises UserError for a page that is cut off, whose
    checksum differs, or which does not follow the page before it in its stream, and warns where the
    last page is missing.

    A page is a header of 27 bytes (byte 5: flags, 6 to 13: the time at its end, 14 to 17: the
    stream's serial number, 18 to 21: the page's number in it, 22 to 25: the checksum, 26: the
    number of segments), a byte for the size of each segment, the segments.
    """
    next_pages: dict[bytes, tuple[int, bool]] = {}  # by serial: the number, whether sound has begun
    n_first_pages, is_last_page = 0, False
    begin = 0  # of the page
    while begin < len(content):
        if content[begin : begin + 4] != b"OggS":
            raise _bad_ogg(path, f"is damaged: no Ogg page begins at byte {begin}")
        sizes_begin = begin + _OGG_HEADER_BYTES
        header = content[begin:sizes_begin]
        n_segments = header[26] if len(header) == _OGG_HEADER_BYTES else 0
        sizes = content[sizes_begin : sizes_begin + n_segments]
        end = sizes_begin + n_segments + sum(sizes)
        if len(header) < _OGG_HEADER_BYTES or len(sizes) < n_segments or end > len(content):
            raise _bad_ogg(path, f"is cut off: its last Ogg page ends after byte {len(content)}")
        if _ogg_checksum(content[begin:end]) != int.from_bytes(header[22:26], "little"):
            raise _bad_ogg(
                path, f"is damaged: the checksum of its Ogg page at byte {begin} differs"
            )
        serial, number = header[14:18], int.from_bytes(header[18:22], "little")
        is_first_page = bool(header[5] & 2)
        if not is_first_page and serial not in next_pages:
            fault = f"is damaged: its Ogg page at byte {begin} is of a stream without a first page"
            raise _bad_ogg(path, fault)
        due, has_sound = next_pages.get(serial, (number, False))
        if number != due and not is_first_page:
            if has_sound or number < due + _LIVE_PAGES:
                fault = (
                    f"page {due} is missing" if number > due else f"page {number} is out of order"
                )
                raise _bad_ogg(path, f"is damaged: {fault} (at byte {begin})")
            log.warning("%s: begins with page %d of a live stream", path, number)
        has_time = header[6:14] not in (bytes(8), b"\xff" * 8)
        next_pages[serial] = number + 1, has_time or (has_sound and not is_first_page)
        n_first_pages += is_first_page
        is_last_page = bool(header[5] & 4)
        begin = end
    if not is_last_page:
        log.warning("%s: has no last Ogg page; it may be cut off", path)
    return len(next_pages) == n_first_pages == 1


def is_ogg(path: str | Path) -> bool:
    """Return whether a file is an Ogg."""
    with Path(path).open("rb") as file:
        return file.read(4) == b"OggS"


def is_chained_ogg(file: IO[bytes]) -> bool:
    """Return whether the last page of an Ogg belongs to another stream than the first, as in Oggs
    that are joined in one file. False for a file that is no Ogg."""
    first_page = _read(file, 0, _OGG_HEADER_BYTES)
    n_bytes = file.seek(0, os.SEEK_END)
    tail = _read(file, max(0, n_bytes - OGG_PAGE_BYTES), OGG_PAGE_BYTES)
    last_page = tail[tail.rfind(b"OggS") :]
    return first_page[:4] == b"OggS" and last_page[14:18] != first_page[14:18]


def _ogg_checksum(page: bytes) -> int:
    """Return Ogg's CRC-32 of a page, in which its own field counts as zeros.

    It has the polynomial of zlib's CRC-32, but takes the bits of a byte in the other order, and
    does not invert the first and the last value. zlib is used because it is fast.
    """
    with_zeros = page[:22] + bytes(4) + page[26:]
    crc = zlib.crc32(with_zeros.translate(_BITS_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2)


def _bad_ogg(path: str | Path, fault: str) -> UserError:
    return UserError(f"{path}: {fault}; copy or export it again.")


# -- WAV ------------------------------------------------------------------------------------


def wav_goes_on(file: IO[bytes]) -> bool:
    """Return whether there are samples after the end that a WAV's header states: what a recorder
    leaves that was stopped, or a program that cannot seek back to correct the header."""
    if _read(file, 0, 4) != b"RIFF":
        return False
    end = file.seek(0, os.SEEK_END)
    bytes_per_s = 0
    for name, position, size in _chunks(file, 12, end):
        if name == b"fmt ":
            bytes_per_s = int.from_bytes(_read(file, position + 8, 4), "little")
        if name == b"data":
            position += _padded(size)
            break
    else:
        return False
    if end - position <= SHORT_S * bytes_per_s:
        return False
    if any(content + size <= end + 1 for _, content, size in _chunks(file, position, end)):
        return False  # a chunk of another kind
    # Zeros are the space that a recorder has reserved.
    pieces = (_read(file, first, 2**20) for first in range(position, end, 2**20))
    return any(piece.strip(b"\0") for piece in pieces)


def _padded(n_bytes: int) -> int:
    """Return the size that a chunk of a WAV takes: its content is padded to an even number."""
    return n_bytes + n_bytes % 2


def _chunks(file: IO[bytes], position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name, the first byte of the content and its size in bytes of the chunks of a WAV
    from a byte on, as far as there are chunks."""
    while position + 8 <= end:
        header = _read(file, position, 8)
        name, size = header[:4], int.from_bytes(header[4:], "little")
        if not re.fullmatch(rb"[A-Za-z0-9 _]{4}", name):
            return
        yield name, position + 8, size
        position += 8 + _padded(size)


def _check_chunks(file: IO[bytes], path: str | Path) -> None:
    """Raise UserError for a WAV with two formats or two sounds, of which a reader takes one, and
    for several WAVs that follow one another in a file."""
    begin = _read(file, 0, 12)
    if begin[:4] != b"RIFF" or begin[8:] != b"WAVE":
        return
    names = [name for name, _, _ in _chunks(file, 12, file.seek(0, os.SEEK_END))]
    if b"RIFF" in names:
        raise UserError(
            f"{path}: holds {names.count(b'RIFF') + 1} WAVs one after another, and a reader takes "
            "the first; join their sound instead, as in: sox 1.wav 2.wav talk.wav"
        )
    for name in (b"fmt ", b"data"):
        if names.count(name) > 1:
            raise UserError(
                f"{path}: is damaged: it has {names.count(name)} chunks `{name.decode()}`, a WAV "
                "has one; export it again"
            )


def _read(file: IO[bytes], position: int, n_bytes: int) -> bytes:
    file.seek(position)
    return file.read(n_bytes)


# -- sizes that other formats state ---------------------------------------------------------

BEGIN_BYTES = 2**16  # of a file, which contain its sizes
_UNKNOWN_BYTES = 2**31 - 512  # such a size or a larger one in RIFF means that it is unknown
_UNKNOWN_UNITS = 2**30
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")


def stated_bytes(begin: bytes) -> int | None:
    """Return the size of a file in bytes by its own header; None where that does not state it.

    begin: the first BEGIN_BYTES of a Matroska, AVI, ASF (WMA), CAF or SPHERE file.
    """
    if begin[:4] == b"\x1aE\xdf\xa3":
        return _matroska_bytes(begin)
    if begin[:4] == b"RIFF" and begin[8:12] == b"AVI ":
        size = int.from_bytes(begin[4:8], "little")
        return 8 + size if size < _UNKNOWN_BYTES else None
    if begin[:4] == b"caff":
        return _caf_bytes(begin)
    if begin[:7] == b"NIST_1A":
        return _sphere_bytes(begin)
    if (properties := begin.find(_ASF_PROPERTIES)) > 0:
        return int.from_bytes(begin[properties + 40 : properties + 48], "little") or None
    return None


def avi_length_s(begin: bytes) -> float:
    """Return the length in seconds that the first audio track of an AVI states; 0.0 for others.

    A track's header (`strh`) has the size of 4 bytes, the kind, and from byte 20 on the length of a
    unit as two numbers, numerator and denominator in seconds, the start, and the number of units.
    """
    if begin[:4] != b"RIFF" or begin[8:12] != b"AVI " or (track := begin.find(b"auds")) < 0:
        return 0.0
    unit, per_s, _, n_units = (
        int.from_bytes(begin[at : at + 4], "little") for at in range(track + 20, track + 36, 4)
    )
    if n_units >= _UNKNOWN_UNITS or not per_s:  # the recorder could not go back to fill it in
        return 0.0
    return n_units * unit / per_s


def _caf_bytes(begin: bytes) -> int | None:
    """Return where the samples (the chunk `data`) of a CAF file end; None where it is unknown."""
    position = 8
    while position + 12 <= len(begin):
        name = begin[position : position + 4]
        size = int.from_bytes(begin[position + 4 : position + 12], signed=True)
        if size < 0:
            return None
        position += 12 + size
        if name == b"data":
            return position
    return None


def _sphere_bytes(begin: bytes) -> int | None:
    """Return the size of a SPHERE file, None where its samples are compressed: its header states
    its own size, and the number of samples, their bytes and the channels."""
    fields = dict(re.findall(rb"^(\w+) -\w+ (\S+)", begin[:1024], re.MULTILINE))
    if b"," in fields.get(b"sample_coding", b""):  # pcm,embedded-shorten-v2.00
        return None
    try:
        channel_bytes = int(fields[b"sample_count"]) * int(fields[b"sample_n_bytes"])
        return int(begin[8:16]) + channel_bytes * int(fields.get(b"channel_count", b"1"))
    except (KeyError, ValueError):
        return None


def _matroska_bytes(begin: bytes) -> int | None:
    """Return where the segment of a Matroska file ends: it follows the EBML header and holds all
    else. None where it is unknown."""
    header_size, header_begin = _matroska_size(begin, 4)  # after the header's id, of 4 bytes
    if header_size is None:
        return None
    segment = header_begin + header_size
    if begin[segment : segment + 4] != _SEGMENT:
        return None
    segment_size, segment_begin = _matroska_size(begin, segment + 4)
    return None if segment_size is None else segment_begin + segment_size


def _matroska_size(begin: bytes, position: int) -> tuple[int | None, int]:
    """Return the size that a Matroska file states at a byte (None: unknown), and the first byte
    after that number.

    A number of n bytes has n - 1 leading zero bits, a one, and the value in the other 7n bits. All
    of these set means that the size is unknown.
    """
    if position >= len(begin) or not begin[position]:
        return None, position
    n_bytes = 9 - begin[position].bit_length()
    end = position + n_bytes
    all_ones = 2 ** (7 * n_bytes) - 1
    value = int.from_bytes(begin[position:end]) & all_ones
    return (None if value == all_ones else value), end
