"""Serves methods to browsers and programs, in the wire format of OpenAI's Realtime transcription.

    streaming-asr serve method=whisperrt,hush_word model=tiny.en port=8000

  host=127.0.0.1        another address needs token=
  port=8000
  token=SECRET          asked of every client as Authorization: Bearer SECRET; in the page's address
                        as /#token=SECRET
  origins=URL,URL       pages of other servers that may connect, and names of this one
  max_sessions=16       at once
  max_session_s=3600    of audio in one session or recording
  max_message_bytes=1000000   of one WebSocket message
  max_file_bytes=100000000    of one recording sent by POST
  idle_s=60             a session or an upload in which nothing comes for so long is ended
  max_queued_s=20       of audio that waits; from there on nothing more is read from that client
  method=NAMES          default hush_word on tiny.en, and on base with language=en;
                        simul_whisper on others; in chunks of 1 s
  gate=speech           none: transcribe also what is no speech
  language=detect       or a code as de, for clients that name none; default: as for `live`
  other settings        those of `run`: model (default tiny.en), chunk, method.beam, ...

  /                          the page: microphone or file, methods side by side
  /v1/realtime               WebSocket; /v1/audio/transcriptions takes recordings, also as a stream
  /v1/models /healthz

Each session is logged as a run is, in outputs/serve/<time>/<session>/<method>/events.jsonl.
SIGTERM lets open sessions finish the audio they have.
"""

from __future__ import annotations

from collections.abc import Sequence

from streaming_asr.terminal import with_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    return with_settings(__doc__, _serve, argv, resumes=False)


def _serve(argv: list[str]) -> int:
    from streaming_asr.serve.command import serve

    return serve(argv)
