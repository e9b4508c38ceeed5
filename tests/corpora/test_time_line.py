"""Recordings of any container and codec are read with the words and times that were written.

Recordings are written with PyAV. Each holds words of one tone each, so that both what was heard
and when can be compared.
"""

import re
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from containers import (
    EVERY_S,
    TIMED,
    UNTIMED,
    Track,
    assert_words,
    drawn_recordings,
    found_words,
    write_pictures,
    write_recording,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_asr.corpora import Folder, audio, decoder, media
from streaming_asr.corpora.audio import Reader, duration_s, load_audio
from streaming_asr.errors import UserError

LOSSLESS = ("alac", "flac", "pcm_s16le", "pcm_f32le", "tta", "wavpack", "pcm_s16be")


@settings(max_examples=60, derandomize=True, deadline=None, database=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(drawn_recordings(), st.sampled_from((None, "", ".wav", ".mp3", ".mp4")))
def test_words_and_times_are_those_that_were_written(drawn, renamed):
    tracks = drawn.tracks
    with tempfile.TemporaryDirectory() as place:
        path = drawn.write(Path(place))
        if renamed is not None:
            path = path.rename(Path(place) / f"b{renamed}")
        heard = load_audio(path)
        assert_words(heard, tracks[0])
        if tracks[0].codec in LOSSLESS:
            assert np.abs(heard).max() == pytest.approx(0.5, abs=0.03)
        stated_s = duration_s(path)
        assert stated_s == 0.0 or stated_s == pytest.approx(len(heard) / 16_000, abs=0.2)
        reader = Reader(path)
        pieces = [reader.read(7001) for _ in range(len(heard) // 7001 + 1)]
        np.testing.assert_array_equal(np.concatenate(pieces), heard)
        part = load_audio(path, 0.5, 1.0)
        np.testing.assert_allclose(part[100:7900], heard[8100:15_900], atol=0.01)


@pytest.mark.parametrize(
    ("ending", "form", "codec", "rate"),
    [
        (*kind[:3], kind[3][0])
        for kind in TIMED + UNTIMED
        # These state neither their length nor their bytes, so that nothing shows what is missing.
        if kind[0] not in ("aac", "mp2", "ac3", "amr", "ts", "mpg")
    ],
)
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_recording_that_is_cut_off_is_refused(tmp_path, ending, form, codec, rate, share):
    path = write_recording(tmp_path / f"a.{ending}", [Track(codec, rate, n_words=8)], form=form)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match=r"is cut off|is damaged|not readable") as refused:
        load_audio(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


def test_frames_that_are_lost_where_no_length_is_stated_are_reported(tmp_path, caplog):
    path = write_recording(tmp_path / "a.mp2", [Track("mp2", 48_000)], form="mp2")
    whole = len(load_audio(path))
    assert not caplog.text
    content = path.read_bytes()
    kept = len(content) * 9 // 10
    path.write_bytes(content[:kept] + content[kept:].replace(b"\xff\xfd", b"\x00\x00"))
    assert abs(len(load_audio(path)) - 0.9 * whole) < 1600
    assert "a.mp2: is damaged: 0." in caplog.text and "s of it cannot be decoded" in caplog.text


def test_a_folder_and_a_single_file_are_corpora(tmp_path):
    path = write_recording(tmp_path / "talk.m4a", [Track("aac", 44_100)])
    (tmp_path / "talk.txt").write_text("four tones")
    for corpus in (Folder(tmp_path), Folder(path)):
        (utterance,) = corpus.utterances()
        assert (utterance.id, utterance.text) == ("talk", "four tones")
        assert_words(utterance.load(), Track("aac", 44_100))


@pytest.mark.parametrize(
    ("flags", "first"),
    [((True, True), 0), ((False, True), 6), ((False, False), 0), ((True, False), 0)],
)
def test_the_default_track_is_read_and_the_others_are_named(tmp_path, caplog, flags, first):
    tracks = [
        Track("libopus", 48_000, first=6 * n, is_default=flag, language=("eng", "ger")[n])
        for n, flag in enumerate(flags)
    ]
    path = write_recording(tmp_path / "a.mkv", tracks)
    assert_words(load_audio(path), tracks[first // 6])
    number = 1 + first // 6
    assert f"holds 2 audio tracks (1 eng, 2 ger), track {number} is read" in caplog.text
    assert "`ffmpeg -i FILE -map 0:a:N track.wav`" in caplog.text


@pytest.mark.parametrize(
    ("gap_s", "n_gaps", "message"),
    [
        (590.0, 1, None),
        (610.0, 1, "leave gaps of 610 s, and it holds 2.41 s of audio"),
        (310.0, 2, "leave gaps of 620 s, and it holds 2.41 s of audio"),
        (3700.0, 1, "leave a gap of 3700 s after 1.2. s of audio, 3600 s at most"),
    ],
)
def test_gaps_are_filled_up_to_a_limit(tmp_path, gap_s, n_gaps, message):
    track = Track("libopus", 48_000, gap_s=gap_s, n_gaps=n_gaps)
    path = write_recording(tmp_path / "a.webm", [track])
    if message is None:
        assert_words(load_audio(path), track)
        return
    with pytest.raises(UserError, match=message):
        load_audio(path)


@pytest.mark.parametrize("ending", ["mkv", "flv"])
def test_a_part_of_a_live_stream_begins_at_its_first_sample(tmp_path, caplog, ending):
    path = write_recording(tmp_path / f"a.{ending}", [Track("aac", 48_000, offset_s=7200.0)])
    assert_words(load_audio(path), Track("aac", 48_000))
    assert "its time stamps begin at 7200 s" in caplog.text


def test_what_lies_before_time_0_is_left_out(tmp_path, caplog):
    track = Track("aac", 48_000, offset_s=-0.5)
    path = write_recording(tmp_path / "a.mkv", [track], options={"avoid_negative_ts": "disabled"})
    expected = [(at, hertz) for at, hertz in track.expected() if at > 0]
    found = found_words(load_audio(path))
    assert [hertz for _, hertz in found] == [hertz for _, hertz in expected]
    assert [at for at, _ in found] == pytest.approx([at for at, _ in expected], abs=0.06)
    assert "0.50 s before its time 0 are left out" in caplog.text


@pytest.mark.parametrize(
    ("first", "second"), [((44_100, 1), (24_000, 2)), ((16_000, 2), (48_000, 1))]
)
@pytest.mark.parametrize(("ending", "codec"), [("aac", "aac"), ("mp3", "libmp3lame")])
def test_a_rate_and_channels_that_change_midway(tmp_path, ending, codec, first, second):
    joined = b""
    for n, (rate, channels) in enumerate((first, second)):
        track = Track(codec, rate, channels=channels, first=6 * n)
        joined += write_recording(tmp_path / f"{n}.{ending}", [track]).read_bytes()
    path = tmp_path / f"a.{ending}"
    path.write_bytes(joined)
    heard = load_audio(path)
    found = [round(hertz) for _, hertz in found_words(heard)]
    assert found == [400, 600, 800, 1000, 1600, 1800, 2000, 2200]
    assert len(heard) / 16_000 == pytest.approx(2 * 4 * EVERY_S, abs=0.3)
    reader = Reader(path)
    np.testing.assert_array_equal(reader.read(len(heard) + 1), heard)


def test_frames_that_cannot_be_decoded_are_silence(tmp_path, caplog):
    track = Track("flac", 48_000, n_words=6)
    path = write_recording(tmp_path / "a.mkv", [track])
    content = bytearray(path.read_bytes())
    first = content.index(b"\xff\xf8")  # that begins the frame of a FLAC
    frames = [m.start() for m in re.finditer(re.escape(content[first : first + 4]), content)]
    for at in frames[10:13]:
        content[at : at + 4] = bytes(4)
    path.write_bytes(content)
    heard = load_audio(path)
    assert len(heard) == pytest.approx(16_000 * 6 * EVERY_S, abs=1600)
    found = {round(hertz): at for at, hertz in found_words(heard)}
    for due, hertz in (track.expected()[0], track.expected()[-1]):
        assert found[round(hertz)] == pytest.approx(due, abs=0.06)
    assert "is damaged: 0." in caplog.text and "s of it cannot be decoded" in caplog.text


def test_time_stamps_that_jitter_add_no_silence(tmp_path):
    jitter = np.random.default_rng(0).uniform(-0.3, 0.3, 1000)
    track = Track("flac", 48_000, n_words=20, jitter_s=tuple(jitter))
    heard = load_audio(write_recording(tmp_path / "a.mkv", [track]))
    assert len(heard) / 16_000 == pytest.approx(20 * EVERY_S, abs=0.7)


def test_a_matroska_of_which_only_a_part_can_be_read_is_refused(tmp_path):
    path = write_recording(tmp_path / "a.mkv", [Track("flac", 48_000, n_words=6)])
    content = bytearray(path.read_bytes())
    at = len(content) // 2
    content[at : at + 3000] = np.random.default_rng(0).bytes(3000)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"is cut off or damaged: 1.\d\d of 3.60 s"):
        load_audio(path)


def test_a_stated_length_that_no_track_has_is_reported(tmp_path, caplog):
    track = Track("libopus", 48_000)
    path = write_recording(tmp_path / "a.webm", [track])
    content = path.read_bytes()
    at = content.index(b"\x44\x89\x88") + 3  # the element Duration, a float of 8 bytes
    path.write_bytes(content[:at] + struct.pack(">d", 9000.0) + content[at + 8 :])
    assert_words(load_audio(path), track)
    assert "its header states 9.00 s, it holds 2.4" in caplog.text


# -- bad input --------------------------------------------------------------------------------

PLAYLIST = "#EXTM3U\n#EXTINF:10,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n"
KEYS = {
    "encryption_scheme": "cenc-aes-ctr",
    "encryption_key": "76a6c65c5ea762046bd749a2e632ccbb",
    "encryption_kid": "a7e61c373e219033c21091fa607bf3b8",
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.m3u8", PLAYLIST),
        ("a.mp3", PLAYLIST),
        ("a.pls", "[playlist]\nFile1=http://127.0.0.1:9/a.mp3\n"),
        ("a.wav", "ffconcat version 1.0\nfile secret.mp4\n"),
        ("a.mpd", '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"/>'),
        ("a.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nm=audio 5004 RTP/AVP 0\n"),
        ("a.ogg", "<html>404 Not Found</html>"),
        ("b.mp3", 300 * "Spielplätze "),
    ],
)
def test_a_text_is_refused_and_nothing_that_it_names_is_opened(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"it holds text\); of a playlist, name the recordings"):
        load_audio(tmp_path / name)


def test_a_playlist_behind_bytes_opens_no_other_file(tmp_path):
    write_recording(tmp_path / "other.ts", [Track("aac", 48_000)], form="mpegts")
    path = tmp_path / "a.m3u8"
    path.write_bytes(
        f"#EXTM3U\n#EXTINF:10,\n{tmp_path}/other.ts\n#EXT-X-ENDLIST\n".encode() + b"\0"
    )
    with pytest.raises(UserError, match="not readable as audio"):
        load_audio(path)


@pytest.mark.parametrize("name", ["https://example.org/a.mp3", "rtmp://h/x?a=b", "file:///a.wav"])
def test_a_url_is_refused(name):
    for path in (name, Path(name)):
        with pytest.raises(UserError, match="is a URL; download the recording"):
            load_audio(path)


def test_a_video_without_sound_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no audio track; give a recording with sound"):
        load_audio(write_pictures(tmp_path / "a.mp4", 2.0))


def test_an_encrypted_recording_is_refused(tmp_path):
    path = write_recording(tmp_path / "a.mp4", [Track("aac", 48_000)], options=KEYS)
    with pytest.raises(UserError, match=r"is encrypted \(DRM\)"):
        load_audio(path)


@pytest.mark.parametrize(
    ("name", "form", "codec"),
    [("a.mkv", "matroska", "libopus"), ("a.wav", "wav", "pcm_s16le"), ("a.flac", "flac", "flac"),
     ("a.aac", "adts", "aac")],
)  # fmt: skip
def test_a_file_that_grows_is_read_as_it_was_when_it_was_opened(
    tmp_path, monkeypatch, name, form, codec
):
    monkeypatch.setattr(audio, "PIECE_S", 1)
    monkeypatch.setattr(decoder, "_is_decoder", True)
    track = Track(codec, 48_000, n_words=10)
    path = write_recording(tmp_path / name, [track], form=form, is_pipe=True)
    content = path.read_bytes()
    whole = load_audio(path)
    reader = Reader(path)
    parts = [reader.read(16_000)]
    with path.open("ab") as file:
        file.write(content[len(content) // 3 :])
    parts.append(reader.read(10**7))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_noise_is_no_recording(tmp_path):
    content = np.random.default_rng(0).bytes(200_000)
    for name in ("a.mp3", "a.wav", "a.bin", "a"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="not readable as audio"):
            load_audio(tmp_path / name)


@pytest.mark.parametrize("error", [ValueError, RuntimeError, OverflowError, MemoryError, KeyError])
def test_whatever_a_decoder_raises_is_an_error_of_its_file(tmp_path, monkeypatch, error):
    import av

    monkeypatch.setattr(decoder, "_is_decoder", True)
    path = write_recording(tmp_path / "a.mkv", [Track("libopus", 48_000)])

    def broken(*_, **__):
        raise error("a fault")

    monkeypatch.setattr(av, "open", broken)
    with pytest.raises(UserError, match=r"a\.mkv: not readable as audio \(.*a fault.*\)"):
        load_audio(path)


def test_a_damaged_frame_of_a_lossy_codec_is_no_reason_to_refuse_the_recording(
    tmp_path, monkeypatch
):
    path = write_recording(tmp_path / "a.mkv", [Track("aac", 48_000)])
    monkeypatch.setattr(decoder, "_is_decoder", True)
    floats = media._floats

    def damaged(frame):
        data = floats(frame)
        data[5:8, 0] = (40.0, np.nan, np.inf)
        return data

    monkeypatch.setattr(media, "_floats", damaged)
    heard = load_audio(path)
    assert np.isfinite(heard).all() and np.abs(heard).max() <= 1


def test_parts_of_one_recording_are_decoded_once(tmp_path, monkeypatch):
    path = write_recording(tmp_path / "a.mp3", [Track("libmp3lame", 44_100)], form="mp3")
    whole = load_audio(path)
    opened = []
    apart = audio.apart
    monkeypatch.setattr(audio, "apart", lambda *which: opened.append(which) or apart(*which))
    for at_s in (0.0, 0.5, 1.5):
        part = load_audio(path, at_s, at_s + 0.5)
        np.testing.assert_array_equal(part, whole[round(16_000 * at_s) :][:8000])
    assert len(opened) == 1
    write_recording(path, [Track("libmp3lame", 44_100, first=5)], form="mp3")
    assert not np.array_equal(load_audio(path, 1.5, 2.0), part)


@pytest.mark.parametrize("codec", ["libopus", "flac"])
def test_a_gap_between_the_pages_of_an_ogg_is_silence(tmp_path, codec):
    track = Track(codec, 48_000, n_words=6, gap_s=3.0)
    path = write_recording(tmp_path / "a.ogg", [track], form="ogg")
    assert_words(load_audio(path), track)
    assert_words(Reader(path).read(10**6), track)
