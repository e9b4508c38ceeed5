"""B-WER and U-WER by hand; the published figures of fbai-speech come out the same."""

import pytest
from traces import a_trace

from streaming_asr.metrics import compute
from streaming_asr.metrics.biasing import biased_errors


@pytest.mark.parametrize(
    ("reference", "text", "listed", "biased", "others"),
    [
        ("call ada now", "call ada now", "ada", (0, 1), (0, 2)),
        ("call ada now", "call ida now", "ada", (1, 1), (0, 2)),
        ("call ada now", "call now", "ada", (1, 1), (0, 2)),
        ("call her now", "call ada her now", "ada", (1, 0), (0, 3)),  # inserted: its own spelling
        ("call her now", "call ada now", "ada", (0, 0), (1, 3)),  # else the reference's word
        ("call ada now", "call now ada", "ada now", (2, 2), (0, 1)),
        ("", "ada", "ada", (1, 0), (0, 0)),
        ("ada", "", "ada", (1, 1), (0, 0)),
        # A gap costs 3 and a substitution 4: two gaps and a right word, not two substitutions.
        ("a b", "b c", "b", (0, 1), (2, 1)),
        # Of two words for one the pair is read from the end.
        ("ada", "ida oda", "ada", (1, 1), (1, 0)),
        ("ida oda", "ada", "ida", (1, 1), (1, 1)),
        ("", "", "ada", (0, 0), (0, 0)),
    ],
)
def test_errors_of_listed_words_and_of_the_others(reference, text, listed, biased, others):
    counts = biased_errors(reference.split(), text.split(), set(listed.split()))
    assert counts == (biased, others)


def test_rates_need_a_list_and_normalise_it():
    def spoken(text, heard, **fields):
        return a_trace(text, [(1.0, 0.1, heard, "")], **fields)

    plain = spoken("Call Ada", "call Ida")
    named = [plain, spoken("Call Ada Lovelace", "call Ida loveless", biasing=["Ada Lovelace"])]
    figures = compute(named)
    assert (figures["b_wer"], figures["u_wer"]) == (100.0, 0.0)
    assert compute([plain])["b_wer"] is compute([plain])["u_wer"] is None
    nothing = compute([spoken("Call Ada", "call Ida", biasing=[])])
    assert (nothing["b_wer"], nothing["u_wer"]) == (None, 50.0)
