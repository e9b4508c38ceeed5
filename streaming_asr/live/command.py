"""Methods side by side on your own voice, or on a file as if it were spoken now.

    streaming-asr live audio=mic                            # pip install -e .[live]
    streaming-asr live method=whisperrt,hush_word audio=talk.wav
    streaming-asr live audio=talk.wav speed=0               # as fast as it goes

  audio=FILE|mic     the source; default mic
  microphone=N|NAME  of several inputs; microphone=list shows them
  speed=1            how fast a file plays; 0: no waiting, one chunk a step
  reference=FILE     the text that was spoken; without one the times of words come from aligning
                     what each method wrote, and no errors are counted
  align=auto|none    whether words get times at the end
  method=NAMES       default hush_word on tiny.en, and on base with language=en;
                     simul_whisper on others
  chunk=1s           default 1s where hush_word, simul_whisper or ufal is among them, else 300ms
  gate=speech|none   transcribe only speech, or all audio
  language=detect    or a code as de; default: a model of many languages detects it
  other settings     those of `run`: model (default tiny.en), chunk, language, method.beam, ...

Committed text is bright, the guess after it dim. Space pauses, q stops. The session is logged and
scored as a run is, in outputs/live/<name>/<cell>/events.jsonl: `score`, `report` and
`score compare` read it.
"""

from __future__ import annotations

import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_asr.config.command_line import OF_A_CORPUS, CommandLine
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples, display_text
from streaming_asr.run.obtain import planned
from streaming_asr.terminal import with_settings

if TYPE_CHECKING:
    from streaming_asr.live.cells import LiveCell

SETTINGS = {
    "audio": "mic",
    "microphone": None,
    "speed": "1",
    "reference": None,
    "align": "auto",
}
PIECE_S = 0.04
MOST_INPUTS = 2  # of a microphone, which may be connected to the second
SILENT_S = 2.0  # of zeros, until they are reported
MAX_QUEUED_S = 5.0  # with speed=0
SHOWN_CHARACTERS = 700  # of a method's text, the newest


@dataclass
class Control:
    """What the user has asked for by keys."""

    stopped: bool = False
    paused: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    return with_settings(__doc__, _live, argv, resumes=False)


def _live(argv: list[str]) -> int:
    """Run a live session, and return the exit status."""
    line = CommandLine(["-m", *argv])
    options = {key: line.pop(key, default) for key, default in SETTINGS.items()}
    speed, source = _speed(options["speed"]), str(options["audio"])
    if options["align"] not in ("auto", "none"):
        raise UserError(f"align={options['align']}: auto or none")
    reference = _read_reference(options["reference"])
    stem = re.sub(r"[^\w.-]", "_", Path(source).stem)
    session = f"'live/{stem}-{datetime.now():%Y%m%d-%H%M%S}'"
    line.refuse(OF_A_CORPUS, "live")
    line.default_methods(1)
    line.default(name=session, tracker="none", gate="speech")
    if source == "mic":
        device = options["microphone"]
        if device == "list":
            print(_microphones())
            return 0
        open_source = _open_microphone(device)
    else:
        open_source = _open_file(source, speed)

    import numpy as np

    from streaming_asr.live.cells import cells_of
    from streaming_asr.live.scores import finish
    from streaming_asr.live.worker import Worker

    cells = cells_of(planned(line))
    name = "mic" if source == "mic" else Path(source).stem
    control, received_s = Control(), 0.0
    # A log names its audio as a file, which a microphone is not.
    keeps_audio = source == "mic"
    audio: list[Samples] = [np.zeros(0, np.float32)]
    with Worker() as worker, _View(cells, name) as view:
        for cell in cells:
            cell.begin(worker, name, grows=speed > 0)
        with suppress(KeyboardInterrupt), _keys(control), open_source(control) as pieces:
            for piece in pieces:
                received_s += len(piece) / SAMPLE_RATE
                if keeps_audio:
                    audio.append(piece)
                for cell in cells:
                    cell.stream.feed(piece)
                view.refresh(received_s, control.paused)
                while speed == 0 and max(c.stream.queued_s for c in cells) > MAX_QUEUED_S:
                    time.sleep(0.01)
        for cell in cells:
            cell.stream.end()
        while not all(cell.done.wait(0.1) for cell in cells):
            view.refresh(received_s, False)
        view.refresh(received_s, False)
    samples = np.concatenate(audio) if keeps_audio else None
    return finish(cells, source, samples, reference, aligns=options["align"] == "auto")


def _speed(text: str | None) -> float:
    try:
        speed = float(text or "")
    except ValueError:
        speed = -1.0
    if not 0 <= speed <= 100:
        raise UserError(f"speed={text}: 1 is the file's own speed, 2 twice that, 0 without waiting")
    return speed


def _read_reference(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return " ".join(Path(path).read_text(encoding="utf-8").split())
    except (OSError, ValueError) as error:
        raise UserError(f"reference={path}: cannot be read ({error}); give a text file") from error


# -- sources --------------------------------------------------------------------------------


def _open_file(path: str, speed: float) -> Callable[[Control], Any]:
    """Return a context manager that yields an iterator of the pieces of a file (`_paced`)."""
    from streaming_asr.corpora.audio import load_audio

    samples = load_audio(path)

    return lambda control: nullcontext(_paced(samples, speed, control))


def _paced(samples: Samples, speed: float, control: Control) -> Iterator[Samples]:
    """Yield pieces of PIECE_S, each at its time in a recording that plays at `speed` times its own
    speed, without waiting for speed 0; until `control` stops it. A pause delays all later ones."""
    size = round(PIECE_S * SAMPLE_RATE)
    due_s = time.perf_counter()
    for begin in range(0, len(samples), size):
        piece = samples[begin : begin + size]
        if speed:
            due_s += len(piece) / SAMPLE_RATE / speed
            while (wait_s := due_s - time.perf_counter()) > 0 or control.paused:
                if control.stopped:
                    return
                if control.paused:
                    due_s += PIECE_S
                    wait_s = PIECE_S
                time.sleep(max(wait_s, 0))
        if control.stopped:
            return
        yield piece


def _sounddevice() -> Any:
    """Return the module. Raises UserError where it or PortAudio is missing."""
    try:
        import sounddevice
    except ModuleNotFoundError as error:
        raise UserError(
            "audio=mic: needs the package sounddevice; pip install -e '.[live]', or give audio=FILE"
        ) from error
    except OSError as error:
        raise UserError(
            f"audio=mic: PortAudio is missing ({error}); apt install libportaudio2, or give "
            "audio=FILE"
        ) from error
    return sounddevice


@contextmanager
def _usable(sounddevice: Any) -> Iterator[None]:
    try:
        yield
    except (sounddevice.PortAudioError, ValueError) as error:
        raise UserError(
            f"audio=mic: no microphone can be opened ({error}); plug one in and allow its use, "
            "choose one that microphone=list shows, or give audio=FILE"
        ) from error


def _microphones() -> str:
    """Return the inputs, a line each, with the number and the name that microphone= takes."""
    sounddevice = _sounddevice()
    with _usable(sounddevice):
        devices = sounddevice.query_devices()
    inputs = [(n, each) for n, each in enumerate(devices) if each["max_input_channels"]]
    lines = [f"{n}  {each['name']}, channels: {each['max_input_channels']}" for n, each in inputs]
    return "\n".join(lines) or "no microphone"


def _open_microphone(device: str | None = None) -> Callable[[Control], Any]:
    """Return a context manager that opens a microphone and yields an iterator of its pieces, each
    (n,) at 16 kHz, without those of pauses. It ends where the microphone does.

    device: its number or a part of its name; None is the default one. Raises UserError at once
    where sounddevice or a microphone is missing, and in the context manager where it is in use.
    """
    sounddevice = _sounddevice()
    from streaming_asr.corpora.audio import Resampler

    chosen = {} if device is None else {"device": int(device) if device.isdecimal() else device}
    with _usable(sounddevice):
        about = sounddevice.query_devices(**chosen, kind="input")
    rate = round(about["default_samplerate"])
    size = round(PIECE_S * rate)
    n_channels = min(about.get("max_input_channels", 1), MOST_INPUTS)

    @contextmanager
    def opened(control: Control) -> Iterator[Iterator[Samples]]:
        pieces: queue.Queue[Any] = queue.Queue()  # (n, channels), and whether some was lost before

        def take(data: Any, n: int, times: Any, status: Any) -> None:
            pieces.put((data.copy(), bool(getattr(status, "input_overflow", False))))

        with _usable(sounddevice):
            stream = sounddevice.InputStream(
                **chosen,
                samplerate=rate,
                channels=n_channels,
                dtype="float32",
                blocksize=size,
                callback=take,
            )
        source = _Input()

        def resampled() -> Iterator[Samples]:
            resampler = Resampler()
            while not control.stopped:
                try:
                    piece, is_late = pieces.get(timeout=0.2)
                except queue.Empty:
                    if getattr(stream, "active", True):
                        continue
                    _warn("the microphone has stopped, as one that was unplugged; the session ends")
                    break
                if control.paused:
                    continue
                mono = source.mono(piece, size if is_late else 0, rate)
                yield mono if rate == SAMPLE_RATE else resampler.of_samples(mono, rate)
            source.warn_of_losses()
            yield resampler.of_frame(None)

        with stream:
            yield resampled()

    return opened


class _Input:
    """Makes mono of what a microphone gives, and warns of what is wrong with it."""

    def __init__(self) -> None:
        self._channel, self._silent_s, self._lost_s = 0, 0.0, 0.0
        self._has_sound = False

    def mono(self, piece: Any, n_lost: int, rate: int) -> Samples:
        """Return the channel with sound of the next samples, (n, channels), after `n_lost` zeros
        for what the computer was too slow to take."""
        import numpy as np

        if n_lost and not self._lost_s:
            _warn("the computer is too slow for the microphone; silence replaces what is lost")
        self._lost_s += n_lost / rate
        if not self._has_sound:
            loud = np.flatnonzero(np.abs(piece).max(axis=0))
            self._silent_s += len(piece) / rate
            if len(loud):
                self._has_sound = True
                self._channel = int(loud[0])
                if self._channel:
                    _warn(f"input 1 of the microphone is silent; input {self._channel + 1} is used")
            elif self._silent_s >= SILENT_S:
                _warn(
                    "the microphone gives only zeros; is it muted, or does the system not allow "
                    "its use? microphone=list shows the others"
                )
                self._silent_s = -float("inf")
        return np.concatenate([np.zeros(n_lost, np.float32), piece[:, self._channel]])

    def warn_of_losses(self) -> None:
        """Report how much was lost in all."""
        if self._lost_s:
            _warn(f"{self._lost_s:.2f} s of the microphone were lost and are silence")


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


# -- the terminal ---------------------------------------------------------------------------


@contextmanager
def _keys(control: Control) -> Iterator[None]:
    """Within the block, q stops and space pauses or resumes, if the input is a terminal."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    ended = threading.Event()

    def listen() -> None:
        import select

        while not ended.is_set():
            if select.select([sys.stdin], [], [], 0.1)[0]:
                key = sys.stdin.read(1)
                control.stopped = control.stopped or key in ("q", "")
                if key == " ":
                    control.paused = not control.paused

    listener = threading.Thread(target=listen, daemon=True)
    tty.setcbreak(sys.stdin)
    listener.start()
    try:
        yield
    finally:
        ended.set()
        listener.join()
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _View:
    """A panel for each method with its committed text, its partial text (dim) and its delay."""

    def __init__(self, cells: Sequence[LiveCell], name: str) -> None:
        from rich.live import Live

        self._cells, self._name = cells, name
        self._live = Live(refresh_per_second=12, transient=False)
        self._size = self._live.console.size

    def __enter__(self) -> _View:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if not self._live.console.is_terminal:
            print()  # rich leaves the cursor at the end of the last line

    def refresh(self, received_s: float, paused: bool) -> None:
        """Draw the panels, and below them the seconds of audio so far and the keys."""
        from rich.console import Group
        from rich.text import Text

        if (size := self._live.console.size) != self._size:  # the terminal has broken old lines
            self._size = size
            self._live.console.clear()
        keys = "paused, space resumes" if paused else "space pauses, q stops"
        foot = Text(f"{self._name}: {received_s:.1f} s of audio · {keys}", style="dim")
        self._live.update(Group(*(_panel(cell) for cell in self._cells), foot))


def _panel(cell: LiveCell) -> Any:
    """Return rich's panel of a method."""
    from rich.panel import Panel
    from rich.text import Text

    committed = display_text(cell.committed)[-SHOWN_CHARACTERS:]
    text = Text(committed, style="bold")
    guess = "".join(word.text for word in cell.stream.partial)
    text.append(guess if committed else guess.lstrip(), style="dim not bold italic")
    if cell.notice is not None:
        text.append(f"\n{cell.notice}", style="dim not bold")
    return Panel(text, title=cell.title, subtitle=cell.figures(), title_align="left")
