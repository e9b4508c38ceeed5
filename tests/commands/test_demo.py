"""The first command of a newcomer: the best model and speech that can be had."""

from __future__ import annotations

from streaming_asr.commands.demo import choose
from streaming_asr.errors import UserError


def without(*lacking: str):
    """An `obtain` that has everything but `lacking`."""

    def obtain(name: str) -> None:
        if name in lacking:
            raise UserError(f"{name}: no network")

    return obtain


def test_real_whisper_hears_the_prompts_where_both_can_be_had() -> None:
    assert choose(without()) == (["model=tiny.en", "data=prompts", "limit=40"], [])


def test_the_voices_of_the_package_stand_in_for_the_prompts_and_one_sentence_says_so() -> None:
    overrides, missing = choose(without("prompts"))
    assert overrides == ["model=tiny.en", "data=voices", "limit=20"]
    (sentence,) = missing
    assert "prompts cannot be had here (prompts: no network)" in sentence


def test_without_weights_the_toy_world_runs_and_the_speech_is_not_fetched() -> None:
    asked: list[str] = []

    def obtain(name: str) -> None:
        asked.append(name)
        raise UserError("no wheel")

    overrides, missing = choose(obtain)
    assert overrides == ["model=mini", "data=mini", "limit=60"]
    assert asked == ["tiny.en"] and len(missing) == 1
