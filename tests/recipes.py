"""The settings of a recipe as conf/recipe/<method>.yaml has them, for tests that change some."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from streaming_asr.config import CONF_DIR


def settings_of(method: str, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of the recipe's constructor; what the file takes from elsewhere (paths,
    chunks) is in `changes` or left out. The seed is 0."""
    node = OmegaConf.load(CONF_DIR / "recipe" / f"{method}.yaml").target
    plain = OmegaConf.to_container(node, resolve=False)
    own = {
        key: value
        for key, value in plain.items()
        if key != "_target_" and not (isinstance(value, str) and value.startswith("${"))
    }
    return {**own, "seed": 0, **changes}
