"""Lints by planted faults."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.fingerprint import canonical
from storage.artifacts.manifest import Recipe
from tasks.designs import findings_of, from_training, lesson_leak_rows, recipe_row
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import RewardTerm
from tasks.domain.policies import BaseModel, Policy
from tasks.domain.scaffolds import ARMS
from tasks.embedding import embedded
from tasks.measures.audit import rewards_of_form
from tasks.measures.bands import bands_of, crosstab_of
from tasks.measures.curves import curves_of
from tasks.measures.diversity import answers_of, ceilings_of, compare_columns, diversity_of
from tasks.measures.groups import count_groups
from tasks.measures.pass_at_k import asymptotes_of, contrasts_of, passk_of, solved_by_of, votes_of
from tasks.measures.tokens import tokens_of
from tests.measures.conftest import classed_by_letter, rows_of

START = Policy(arm="panel", model=BaseModel(sha256="m"))
LEARNER = LearnerConfig(steps=40, groups_per_step=1, group_size=8, learning_rate=0.001, lora_rank=16, lora_alpha=16)


def design(**fields: Any) -> dict[str, Any]:
    policy = {"arm": "panel", "model": "m", "policy": "m", "problems": "pool", "num_problems": 10}
    sizes = {"group_size": 8, "max_tokens": 128, "steps": None, "place": "here"}
    run = {"run": fields.get("arm", "x") + fields.get("role", ""), "role": "heldout", "family": "f"}
    return run | policy | sizes | fields


def codes(*designs: dict[str, Any], **tables: list[dict[str, Any]]) -> list[str]:
    return sorted({r["code"] for r in findings_of({"designs": designs} | tables).to_pylist()})


SCREENING = design(role="screening", family="screening")
TRAINING = design(role="training", family="training", steps=40, last_evaluated=40, seeds=3)
ARMS_OF = (design(grader="1"), design(arm="thinking", grader="1"))
#: Fields of the second design, and the code of their finding.
FAULTS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "between two arms": [
        ({"max_tokens": 64}, "max_tokens"),
        ({"group_size": 4}, "unequal_n"),
        ({"model": "other"}, "different_models"),
        ({"problems": "elsewhere"}, "reference"),
        ({"grader": "2"}, "grader_version"),
        ({"truncated": 0.4}, "truncation"),
        ({"planned_problems": 20}, "partial_run"),
    ],
    "between screening and training": [
        ({"policy": "m+a@3"}, "screening_policy"),
        ({"group_size": 16}, "group_size"),
        ({"max_tokens": 64}, "max_tokens"),
        ({"last_evaluated": 30}, "last_step"),
        ({"last_evaluated": None}, "last_step"),
        ({"seeds": 1}, "single_seed"),
    ],
}


def test_a_fault_is_found_and_a_sound_design_has_none() -> None:
    assert codes(*ARMS_OF, SCREENING, TRAINING) == []
    for fields, code in FAULTS["between two arms"]:
        assert code in codes(ARMS_OF[0], ARMS_OF[1] | fields)
    for fields, code in FAULTS["between screening and training"]:
        assert codes(SCREENING, TRAINING | fields) == [code]


def test_arms_that_were_trained_with_other_settings_are_found() -> None:
    """The seed is no such setting; the sentence names what differs and nothing else."""

    def trained(arm: str, learner: LearnerConfig) -> dict[str, Any]:
        return recipe_row(arm, {"start": canonical(replace(START, arm=arm)), "learner": canonical(learner)})

    panel, same = trained("panel", LEARNER), trained("thinking", replace(LEARNER, seed=1))
    other = trained("thinking", replace(LEARNER, lora_rank=8))
    assert codes(recipes=[panel, same]) == []
    found = findings_of({"recipes": [panel, other]}).to_pylist()
    assert [(r["code"], r["fact"]) for r in found] == [
        ("hyperparameters", "panel was trained with lora_rank=16 and thinking with lora_rank=8")
    ]


def test_a_training_whose_learner_reads_another_distribution_is_found() -> None:
    start, learner = canonical(START), canonical(LEARNER)
    arguments: dict[str, object] = {"start": start, "learner": learner, "rollouts": {"max_tokens": 128}}
    recipe = Recipe(stage="train_adapter", version=2, arguments=arguments, inputs={})
    assert codes(from_training("here", recipe, "pool", 3, 40)) == []
    nucleus = recipe.model_copy(
        update={"arguments": arguments | {"rollouts": {"max_tokens": 128, "top_p": {"float": "0.9"}}}}
    )
    assert codes(from_training("here", nucleus, "pool", 3, 40)) == ["behaviour"]


def test_a_reward_for_tags_that_arms_do_not_share_is_found() -> None:
    paid = replace(LEARNER, rewards=(RewardTerm(name="correct"), RewardTerm(name="tag", weight=0.2)))

    def noted(*arms: str, learner: LearnerConfig = paid) -> list[str]:
        starts = {arm: canonical(replace(START, arm=arm, scaffold=ARMS[arm].scaffold)) for arm in arms}
        trainings = {arm: {"start": start, "learner": canonical(learner)} for arm, start in starts.items()}
        return [row["said"] for row in rewards_of_form(trainings)]

    assert noted("panel") == noted("panel", "no_panel", learner=LEARNER) == []
    row = recipe_row("here", {"start": canonical(START), "learner": canonical(paid)})
    assert "rewards=1 correct, 0.2 tag" in row["settings"]
    [panel, plain] = noted("panel", "no_panel")
    assert "'tag' pays for mutipersonaDebate and answer;" in panel and "pays for answer;" in plain


def test_a_lesson_that_holds_a_held_out_problem_is_found_and_said_to_be_harmless_where_it_was_left_out() -> None:
    text = "A rectangular box has edges of length three, four and five and is cut by one plane."
    held = pa.table({"problem_id": ["h"], "source_id": ["OB_1"], "problem": [text]})
    lesson = pa.table({"problem_id": ["a", "b"], "source_id": ["M_1", "M_2"], "problem": [text, "1 + 1 = ?"]})
    for split, matter in (("train", "is no test"), ("near_heldout", "no harm")):
        splits = pa.table({"problem_id": ["a", "b"], "split": [split, "train"]})
        rows = lesson_leak_rows(held, lesson, splits, "lesson")
        (found,) = findings_of({"leaks": rows}).to_pylist()
        assert found["code"] == "near_duplicate" and "OB_1 is held out and M_1" in found["fact"]
        assert matter in found["inference"] and found["place"] == "lesson"


def test_a_source_that_is_trained_on_far_above_its_share_is_found() -> None:
    """Two problems of one source got a quarter of the groups; one of 4.9 times its share is let pass."""

    def exposed(source: str, problems: int, groups: int) -> dict[str, Any]:
        rest = {"all_problems": 200, "all_groups": 480, "place": "training"}
        return {"arm": "panel", "source": source, "problems": problems, "groups": groups} | rest

    assert codes(exposed=[exposed("olympiad", 178, 243), exposed("amc", 20, 235)]) == []
    rows = [exposed("aime", 2, 120), exposed("olympiad", 198, 360)]
    (found,) = findings_of({"exposed": rows}).to_pylist()
    assert found["code"] == "source_share" and found["value"] == pytest.approx(25)
    assert found["fact"] == "panel sampled 25 % of its groups from aime, which has 2 of its 200 training problems"


def test_coverage_leaks_and_p_values() -> None:
    leak = {"source_id": "a", "other_source_id": "b", "similarity": 0.98, "kind": "near", "place": "pool"}
    seen = {"arm": "thinking", "problems": "p", "window": "whole", "coverage": 0.04, "basis": "measured", "place": "d"}
    normal = {
        "test": "t",
        "t": 5.91188971789758,
        "n": 50,
        "p_printed": 3.382e-09,
        "p_t": 3.2e-07,
        "p_normal": 3.382e-09,
    }
    students = normal | {"p_printed": 3.2e-07}
    assert codes(leaks=[leak], coverage=[seen], tests=[normal]) == ["encoder_coverage", "near_duplicate", "normal_p"]
    assert codes(tests=[students]) == []


# What measurement may meet: too few rollouts, a source that one arm lacks, no trace, no number, no common problem.
# Every table of the analysis says null with a reason; none holds a number that is none, and none fails half way.


KS = (1, 2, 4)
BAD: dict[str, list[pa.Table]] = {
    "n smaller than k": [rows_of({"a": "cw", "b": "cwww"}), rows_of({"a": "cw", "b": "cccc"}, arm="thinking")],
    "groups of one rollout": [rows_of({"a": "c", "b": "w"}), rows_of({"a": "w", "b": "w"}, arm="thinking")],
    "a source that the second lacks": [
        rows_of({"a": "cw"}),
        rows_of({"b": "cw"}, source="aime"),
        rows_of({"a": "cw"}, arm="thinking"),
    ],
    "a source that the first lacks": [
        rows_of({"a": "cw"}),
        rows_of({"a": "cw"}, arm="thinking"),
        rows_of({"b": "cw"}, source="aime", arm="thinking"),
    ],
    "every trace malformed": [rows_of({"a": "tt", "b": "tt"}), rows_of({"a": "tt", "b": "tt"}, arm="thinking")],
    "nothing correct": [rows_of({"a": "ww", "b": "ww"}), rows_of({"a": "ww", "b": "ww"}, arm="thinking")],
    "no problem in common": [rows_of({"a": "cw"}), rows_of({"b": "cw"}, arm="thinking")],
}


def one_arm(parts: list[pa.Table], arm: str) -> pa.Table:
    return pa.concat_tables([part for part in parts if part["arm"][0].as_py() == arm])


def vectors(rollouts: pa.Table) -> pa.Table:
    n = sum(trace is not None for trace in rollouts["trace"].to_pylist())
    drawn = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    return embedded(rollouts, drawn if n else np.zeros((0, 1), np.float32), np.ones(n), "whole")


def crosstab(parts: list[pa.Table]) -> pa.Table:
    return crosstab_of(pa.concat_tables([bands_of(one_arm(parts, arm)) for arm in ("panel", "thinking")]), 16)


def groups(parts: list[pa.Table]) -> pa.Table:
    return count_groups(pa.concat_tables(parts))


#: Table → how it is made, and the columns of which one is a row's figure.
TABLES: dict[str, tuple[Callable[[list[pa.Table]], pa.Table], str]] = {
    "crosstab": (crosstab, "estimate p_value"),
    "passk": (lambda parts: passk_of(groups(parts), KS, 50, 0), "estimate"),
    "contrasts": (lambda parts: contrasts_of(groups(parts), KS, 50, 0), "estimate"),
    "asymptotes": (lambda parts: asymptotes_of(groups(parts)), "estimate"),
    "curves": (lambda parts: curves_of(groups(parts), None, {}, {}), "estimate"),
    "solved_by": (lambda parts: solved_by_of(groups(parts)), "solved_by"),
    "tokens": (lambda parts: tokens_of(pa.concat_tables(parts)), "estimate mean"),
    "votes": (lambda parts: votes_of([classed_by_letter(pa.concat_tables(parts))], KS, 0), "estimate"),
    "answers": (lambda parts: answers_of(classed_by_letter(pa.concat_tables(parts))), "entropy"),
    "diversity": (lambda parts: diversity_of(vectors(pa.concat_tables(parts))), "diversity"),
    "ceilings": (lambda parts: ceilings_of([vectors(one_arm(parts, "panel"))], []), "within"),
    "comparison": (
        lambda parts: compare_columns(
            [diversity_of(vectors(one_arm(parts, arm))) for arm in ("panel", "thinking")], ("diversity",)
        ),
        "difference",
    ),
}


#: No trace, no vector: the report says so of each policy (below).
NO_ROW = [("every trace malformed", table) for table in ("diversity", "ceilings", "comparison")]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("what", BAD)
def test_null_has_a_reason_and_numbers_are_numbers(what: str, table: str) -> None:
    make, figures = TABLES[table]
    rows = make(BAD[what]).to_pylist()
    assert (rows == []) == ((what, table) in NO_ROW)
    for row in rows:
        assert all(math.isfinite(v) for v in row.values() if isinstance(v, float)), row
        counted = row.get("metric") == "only"  # its figure is a count
        told = [row[name] for name in figures.split() if row[name] is not None]
        assert told or counted or row["reason"], row
