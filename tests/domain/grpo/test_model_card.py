from __future__ import annotations

from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.model_card import model_card
from tasks.domain.grpo.steps import PromptProblem

CONFIG = LearnerConfig(steps=2, groups_per_step=1, group_size=2, learning_rate=5e-6, lora_rank=4, lora_alpha=4)


def row(step: int) -> dict[str, object]:
    return {
        "step": step,
        "reward_mean": 0.5,
        "correct_mean": 0.5,
        "tag_valid_mean": 1.0,
        "live_groups": 1.0,
        "length_mean": 60.25,
        "entropy": None,
    }


def test_what_a_reader_needs_is_there() -> None:
    problems = [PromptProblem("a", "amc"), PromptProblem("b", "amc"), PromptProblem("c", "aime24")]
    card = model_card(base="tiny", licence="apache-2.0", config=CONFIG, problems=problems, steps=[row(1), row(2)])
    assert card.startswith("---\nbase_model: tiny\nlicense: apache-2.0\n")
    assert "# LoRA of tiny after 2 GRPO steps" in card
    assert "3 problems: 1 of aime24, 2 of amc." in card
    assert "| 2 | 0.5 | 0.5 | 1 | 1 | 60.25 | – |" in card
    assert "| learning_rate | 5e-06 |" in card
    assert "| clip_low | 0.2 |" in card


def test_every_tenth_step_is_shown() -> None:
    card = model_card(base="b", licence=None, config=CONFIG, problems=[], steps=[row(i) for i in range(1, 26)])
    shown = [line.split("|")[1].strip() for line in card.splitlines() if line.startswith("| ") and "60.25" in line]
    assert shown == ["1", "10", "20", "25"] and "license: other" in card
