"""Sampling engines serve the largest adapter that a study trains on their base, and none where it trains none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.study.layout import served_ranks
from flows.study.memory import Machine, told
from flows.study.request import Request, profile_named, profile_of
from storage.artifacts.store import Store
from tasks.domain.policies import BaseModel
from tasks.engines.memory import GIB
from tests.tiny_model import write_tiny_mixture

ONE, OTHER = BaseModel(name="one", sha256="1" * 64), BaseModel(name="other", sha256="2" * 64)
DEMO = profile_named("demo")
MODELS = {"panel": ONE, "thinking": ONE}


def test_an_objective_s_own_rank_is_served_too() -> None:
    """Its adapter was refused by the engine once it was trained, where adapters lie beside the weights."""
    wide = profile_of("wide.toml", "base = 'demo'\n[objectives.GRPO]\n[objectives.wide]\nlora_rank = 64\n")
    assert served_ranks(wide, MODELS, {}) == {ONE.sha256: 64}
    assert served_ranks(DEMO, MODELS, {}) == {ONE.sha256: 16}
    assert served_ranks(replace(DEMO, seeds=()), MODELS, {}) == {ONE.sha256: 0}


def test_a_base_on_which_nothing_is_trained_serves_what_was_made_elsewhere_alone() -> None:
    models = {"panel": ONE, "top": OTHER, "thinking": ONE}
    top = replace(DEMO.arm("panel"), name="top", trained_as=None)
    ceiling = replace(DEMO, arms=("panel", "top"), own=(top,))
    assert served_ranks(ceiling, models, {}) == {ONE.sha256: 16, OTHER.sha256: 0}
    assert served_ranks(ceiling, models, {OTHER.sha256: 8, ONE.sha256: 8}) == {ONE.sha256: 16, OTHER.sha256: 8}


def test_a_ceiling_asks_for_no_room_for_adapters(tmp_path: Path) -> None:
    """Of a mixture that is trained the host holds two copies, the sampler's and the learner's; of a ceiling none."""
    base = write_tiny_mixture(tmp_path / "model", max_position_embeddings=512)
    asks = "base = 'demo'\n[hardware]\ndevice = 'cuda'\ndtype = 'bfloat16'\n"
    lines = [
        told(
            Request(profile="a.toml", text=asks + arm, model=str(base)).study(Store(tmp_path), planning=True),
            Machine(gpus=1, gpu=80 * GIB, host=80 * GIB),
        )
        for arm in ("[arms.panel]\n", "[arms.panel]\ntrained_as = 'none'\n")
    ]
    assert "of host memory" in lines[0][0] and "of host memory" not in lines[1][0]
