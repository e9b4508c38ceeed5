"""Faults of live systems are found in logs of random speech; logs without faults give no alarm.

This file and the metrics have different authors: both follow docs/metrics.md ("Live systems").
"""

import random
from bisect import bisect_right
from itertools import accumulate

from streaming_asr.events.log import EventWriter, Step, UtteranceLog, read_log
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.metrics import live, traces
from streaming_asr.utterance import TimedWord

N_CLEAN, N_PLANTED = 300, 100
FAULTS = {  # a log has the fault where the metric is above 0
    "beginning": "first_words_dropped",
    "after a pause": "words_dropped_after_pauses",
    "before a pause": "words_dropped_before_pauses",
    "no text": "textless_over_5s_ca",
    "slow step": "textless_over_5s_ca",
}
WRONG, ADDED, TOGETHER = 0.08, 0.03, 0.02  # ordinary errors, per word


def speech(draw):
    """Return the words of about half a minute: phrases, with pauses of 0.1 to 3 s between them."""
    words, end = [], draw.uniform(0, 3)
    length_s = draw.uniform(25, 40)
    while end < length_s:
        for _ in range(draw.randint(1, 14)):
            n = draw.choice((1, 1, 2, 2, 3))
            start = end + draw.choice((0, 0, 0.04, 0.08))
            end = start + n * draw.uniform(0.12, 0.25)
            words.append(TimedWord(a_word(draw, n), round(start, 2), round(end, 2)))
        end += 0.1 * 30 ** draw.random()
    return words


def a_word(draw, n_syllables):
    return "".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(n_syllables))


def misheard(draw, text):
    """Return another word that differs in one syllable."""
    at = 2 * draw.randrange(len(text) // 2)
    return text[:at] + a_word(draw, 1) + text[at + 2 :]


def edges(words, pause_s, reach_s):
    """Return where words may be lost, by kind, as sets of their indices: in the first `reach_s` of
    speech, and as much after or before each pause of `pause_s` or more."""
    later = [k for k in range(1, len(words)) if words[k].start - words[k - 1].end >= pause_s]

    def after(k):
        until = words[k].start + reach_s
        return {i for i in range(k, len(words)) if words[i].start <= until}

    def before(k):
        return {i for i in range(k + 1) if words[i].end >= words[k].end - reach_s}

    return {
        "beginning": [after(0)],
        "after a pause": [after(k) for k in later],
        "before a pause": [before(k - 1) for k in later],
    }


def output_of(draw, words, lost):
    """Return what a method outputs, (text, second of its end) of each word: without those in
    `lost` and up to two that are far from all edges, some wrong, added, or written together."""
    near = set().union(*(each for kind in edges(words, 0.4, 1.2).values() for each in kind))
    far = [k for k in range(len(words)) if k not in near]
    lost = lost | set(draw.sample(far, min(2, len(far))))
    output = []
    for k, (text, start, end) in enumerate(words):
        error = draw.random()
        if k in lost:
            continue
        if error < WRONG:
            text = misheard(draw, text)
        elif error < WRONG + TOGETHER and output and start - output[-1][1] < 0.1:
            text = output.pop()[0] + text
        output.append((text, end))
        if error > 1 - ADDED:
            output.append((a_word(draw, 1), end))
    return output


def stretch(draw, words):
    """Return the begin and the end, in seconds, of a stretch with 5.5 to 8 s of speech."""
    first = draw.randrange(len(words) // 4)
    spoken_s = list(accumulate(word.end - word.start for word in words[first:]))
    return words[first].start, words[first + bisect_right(spoken_s, draw.uniform(5.5, 8))].end


def a_log(name, seed, kind=None):
    """Return the log of one recording, with the fault `kind` if there is one."""
    draw = random.Random(seed)
    words = speech(draw)
    edge = edges(words, 0.5, draw.uniform(0, 0.8)).get(kind)
    begin, end = stretch(draw, words) if kind in ("no text", "slow step") else (0, 0)
    delay_s, until_final_s = draw.uniform(0.1, 0.8), draw.uniform(0, 2)
    texts, shown_s = [], []
    for text, spoken_s in output_of(draw, words, draw.choice(edge) if edge else set()):
        at = spoken_s + delay_s + draw.uniform(0, 0.4)
        texts.append(f" {text}")
        shown_s.append(end if kind == "no text" and begin <= at < end else at)
    shown_s = list(accumulate(shown_s, max))
    final_s = [at + until_final_s for at in shown_s]
    chunk = draw.choice((3200, 4800, 8000, 16_000, 24_000))
    total = round((words[-1].end + draw.uniform(0, 2)) * SAMPLE_RATE)
    steps, n_final, is_slow = [], 0, kind == "slow step"
    for received in [*range(chunk, total, chunk), total]:
        now, is_last = received / SAMPLE_RATE, received == total
        n_shown, n_next = (bisect_right(at, 1e9 if is_last else now) for at in (shown_s, final_s))
        partial = texts[n_next:n_shown]
        if partial and draw.random() < 0.3 and not begin - 2 <= now < end:
            partial[-1] = f" {misheard(draw, partial[-1].strip())}"  # until the next step
        wall_s = draw.uniform(0.01, 0.1)
        if is_slow and now > begin:
            wall_s, is_slow = end - begin, False
        compute_ns = {"wall": round(wall_s * 1e9)}
        steps.append(Step("flush" if is_last else "audio", received, compute_ns))
        steps[-1].committed, steps[-1].partial = texts[n_final:n_next], partial
        n_final = n_next
    return UtteranceLog(name, " ".join(w.text for w in words), total, words, steps=steps)


def test_planted_faults_are_found_and_clean_logs_give_no_alarm(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)  # 400 logs would wait for the disk
    kinds = [None] * N_CLEAN + list(FAULTS) * (N_PLANTED // len(FAULTS))
    with EventWriter(tmp_path / "events.jsonl", {"config": {}}) as writer:
        for seed, kind in enumerate(kinds):
            writer.write_utterance(a_log(f"{kind or 'clean'} {seed}", seed, kind))
    missed, alarms = [], []
    for kind, trace in zip(kinds, traces(read_log(tmp_path / "events.jsonl")), strict=True):
        metrics = live.figures([trace])
        found = sorted({metric for metric in FAULTS.values() if metrics[metric]})
        if kind is None and found:
            alarms.append((trace.utt, found))
        elif kind and FAULTS[kind] not in found:
            missed.append((trace.utt, found))
    assert len(missed) <= N_PLANTED // 20, missed
    assert len(alarms) <= 3, alarms
