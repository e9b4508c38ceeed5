"""How the hypotheses of U2's first pass differ."""

from __future__ import annotations

from experiments.u2.nbest import compared


def test_candidates_are_compared_with_the_first_of_their_segment() -> None:
    segment = ["It costs $5, I think.", "it costs $5 I think", "It cost $5, I think so."]
    assert compared([segment, ["Yes."], ["", "uh"]]) == [(0, 5), (2, 5)]
