"""The report's sentences: conclusions that the rows support, withheld conclusions, and reservations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.schemas import Curves, Tokens
from storage.sql import named, query
from tasks.measures.curves import gain_rows, gains_of
from tasks.report.findings import SCREENING, START, TRAINED, answer, caveats
from tests.measures.simulated import group_rows, names

Row = dict[str, Any]
PAIR = ("panel", "thinking")
ARMS = pa.table({"arm": list(PAIR), "place": [0, 1]})
#: Defaults of one row of each query that the sentences are made of.
FORM = {"sampled": START, "seed": None, "accuracy": 0.3, "taught": False} | dict.fromkeys(
    ("no_answer", "invalid_tags", "truncated"), 0.0
)
SUMMARY = {"arm": "panel", "seed": 0, "problems": None, "variance": 30, "updates": 4, "heldout_before": 0.5}
SUMMARY |= {"heldout_after": 0.55, "gain": None, "gain_low": None, "gain_high": None}
GAIN = {"arm": "panel", "source": "all", "gain": 0.05, "gain_low": 0.01, "gain_high": 0.09, "p_adjusted": 0.01}
GAIN |= {"p_equivalent_corrected": 0.6}
APART = {"arm": "panel", "other": "thinking", "source": "all", "more_gain": 0.1, "more_gain_low": 0.05, "n": 100}
APART |= {"more_gain_high": 0.15, "p_adjusted": 0.001, "p_equivalent_corrected": 0.9, "detectable_gain": 0.03}
APART |= {"reason": None, "holds_for": "the recipe, by 6 seeds"}
WIDTH = {"metric": "diversity", "basis": "equal_n", "arm": "panel", "other": "thinking", "step": 0, "other_step": 0}
WIDTH |= {"n": 50, "mean": 0.2, "other_mean": 0.1, "difference": 0.1, "difference_low": 0.05, "difference_high": 0.15}


def rows_for(tables: dict[str, list[Row] | pa.Table]) -> Callable[[str], pa.Table]:
    """tables: by query, without `report_`; the others are empty."""

    def ask(name: str) -> pa.Table:
        rows = tables.get(name.removeprefix("report_"), [])
        return rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)

    return ask


def sentences(**tables: list[Row] | pa.Table) -> list[str]:
    return answer(rows_for(tables))


def text(**tables: list[Row] | pa.Table) -> str:
    return " ".join(sentences(**tables))


# Gains. A sentence says that two arms gain the same only if an equivalence test shows it.


def both_gain(problems: int, gain: float) -> str:
    """Return the sentences on two arms that both gain `gain`. Counts of correct rollouts vary by up to 4 of 16."""
    at = np.arange(problems)
    groups = pa.concat_tables(
        group_rows(arm, step, f"{arm}{step}" if step else "", names(problems), "amc", 16, correct)
        for place, arm in enumerate(PAIR, start=1)
        for step in (0, 1)
        for correct in [round(16 * (0.5 + step * gain)) + 2 * ((at * place + 2 * step) % 5 - 2)]
    )
    curves = pa.Table.from_pylist(gain_rows(groups), schema=Curves.schema)
    return text(
        difference_of_gains=query(named("report_difference_of_gains"), gain_differences=gains_of(groups), arms=ARMS),
        gains=query(named("report_gains"), curves=curves, arms=ARMS),
        summary=[SUMMARY | {"arm": arm, "gain": gain, "heldout_after": 0.5 + gain} for arm in PAIR],
    )


@pytest.mark.parametrize(("problems", "shown", "word"), [(4000, "shown", "but"), (50, "not shown", "and")])
def test_arms_alike_and_unchanged_are_told_so_where_the_study_can_tell(problems: int, shown: str, word: str) -> None:
    gained, still = both_gain(problems, 0.125), both_gain(problems, 0.0)
    assert "undecided which gains more (this study would find" in gained
    assert f"{word} that both gain the same to within 2 pp is {shown} (equivalence, p = " in gained
    assert "unchanged" not in gained  # both gained twelve points
    for arm in PAIR:
        assert f"undecided whether {arm} changed, {word} that it is unchanged to within 2 pp is {shown}" in still


@pytest.mark.parametrize(("corrected", "said"), [(0.098, True), (0.03, False)])
def test_what_its_family_corrects_away_is_undecided(corrected: float, said: bool) -> None:
    """The interval of a gain excludes 0, and the corrected p-value decides. (The interval of a difference of gains is
    itself corrected.) With three equal arms, one study in seven had a pair whose uncorrected interval excluded 0."""
    found = text(gains=[GAIN | {"p_adjusted": corrected}], summary=[SUMMARY | {"gain": 0.05}])
    assert ("undecided whether panel changed after correction for all gains" in found) is said


def test_after_several_looks_the_confidence_sequence_decides() -> None:
    """The interval of one look excludes 0, that of all looks does not."""
    apart = APART | {"sequence_low": -0.01, "sequence_high": 0.21}
    ask = rows_for({"difference_of_gains": [apart], "audit": pa.table({"code": []})})
    assert "interval [+5.0, +15.0], p = 0.001" in answer(ask)[0]
    assert "interval [−1.0, +21.0], which contains zero" in answer(ask, looks=2)[0] and "p =" not in answer(ask, 2)[0]
    assert "this study would find 9.0 pp" in answer(ask, 2)[0]  # 3 pp, and half of 22 − 10, the widths
    assert caveats(ask)[0] == "First look at this question in this store."
    assert caveats(ask, "Not registered before sampling.", 2)[0].startswith("Not registered before sampling. Look 2 at")


@pytest.mark.parametrize(
    ("updates", "low", "said"),
    [
        (4, 0.02, "Training moved held-out accuracy of panel from 62.5 % to 68 %"),
        (4, -0.01, "Held-out accuracy went under panel from 62.5 % to 68 %"),
        (0, 0.02, "Nothing was learnt under panel: training made no update."),
    ],
)
def test_training_moved_only_what_it_updated_and_its_interval_shows(updates: int, low: float, said: str) -> None:
    ends = {"gain": 0.055, "gain_low": low, "gain_high": 0.12}
    row = SUMMARY | ends | {"heldout_before": 0.625, "heldout_after": 0.68, "updates": updates}
    found = text(summary=[row], gains=[GAIN | ends])
    assert said in found
    assert ("Training moved" in found) is said.startswith("Training moved")


def test_seeds_of_an_arm_are_one_gain() -> None:
    seeds = [SUMMARY | {"seed": i, "gain": gain, "heldout_after": 0.5 + gain} for i, gain in enumerate((0.03, 0.07))]
    climb = "from 50 % to 55 % (+5.0 pp, 95 % interval [+1.0, +9.0]; 2 seeds from +3.0 to +7.0)."
    assert f"Training moved held-out accuracy of panel {climb}" in text(summary=seeds, gains=[GAIN])


def test_an_arm_under_another_ones_adapter_has_the_interval_of_its_gain() -> None:
    """The arm `no_panel` evaluates panel's adapter without panel's prompt, and has no training of its own."""
    rates = [("panel", None, 4), ("panel", "training-1", 12), ("no_panel", None, 4), ("no_panel", "training-1", 8)]
    final = [
        {"ref": f"{arm}-{adapter}", "arm": arm, "adapter": adapter, "problem_id": f"p{i:02d}", "correct": g < c}
        | {"num_tokens": 10, "verdict": "correct", "tag_valid": True, "finish": "stop"}
        | {"logprob_sum": None}
        for arm, adapter, c in rates
        for i in range(20)
        for g in range(16)
    ]
    gap = {"metric": "gap", "k": 1, "source": "all"}
    contrasts = [
        gap | {"arm": a, "other": a, "low": -g - 0.1, "high": -g + 0.1} for a, g in (("panel", 0.5), ("no_panel", 0.25))
    ]
    empty = {
        "bands": {"arm": pa.string(), "band": pa.string()},
        "diversities": {"ref": pa.string(), "diversity": pa.float64(), "window": pa.string()},
        "measured": {"final": pa.string(), "diversity": pa.string()},
    }
    rows = query(
        named("report_summary"),
        final=pa.Table.from_pylist(final),
        trainings=pa.table({"ref": ["training-1"], "seed": [3], "updates": [4]}),
        tokens=Tokens.schema.empty_table(),
        contrasts=pa.Table.from_pylist(contrasts),
        arms=pa.table({"arm": ["panel", "no_panel"], "place": [0, 1]}),
        **{name: pa.schema(list(columns.items())).empty_table() for name, columns in empty.items()},
    ).to_pylist()
    found = {row["arm"]: (row["seed"], row["gain"], row["gain_low"], row["gain_high"]) for row in rows}
    assert found["panel"] == pytest.approx((3, 0.5, 0.4, 0.6))
    assert found["no_panel"] == pytest.approx((3, 0.25, 0.15, 0.35))
    assert {row["tokens_per_correct"] for row in rows} == {None}  # neither log-probs nor a table of tokens: words


# Form: shares without an answer or valid tags qualify or withhold what is said of ability.


def test_a_gain_of_an_arm_that_hardly_answers_is_one_of_form() -> None:
    """Most rollouts of thinking have no answer, before training and after."""
    form = [
        FORM | {"arm": arm, "sampled": sampled, "no_answer": share, "accuracy": 0.02, "invalid_tags": 0.4}
        for arm, share in (("panel", 0.0), ("thinking", 0.9))
        for sampled in (START, TRAINED)
    ]
    gained = SUMMARY | {"problems": 100, "heldout_before": 0.02, "heldout_after": 0.06}
    gained |= {"gain": 0.04, "gain_low": 0.01, "gain_high": 0.07}
    found = text(form=form, summary=[gained | {"arm": arm} for arm in PAIR])
    assert "Training moved held-out accuracy of panel from 2 % to 6 %" in found
    assert "90 % of the rollouts of thinking give no answer (at most 50 %): a gain is then one of form" in found


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"taught": False}, "thinking starts without a lesson, and panel had one, so what differs is not their scaff"),
        ({"truncated": 0.4}, "40 % of thinking (at most 25 % apart), so what differs is form and not what is solved"),
        ({"invalid_tags": 1.0}, "rollouts of thinking have no valid tags (at most 50 %), so what differs is"),
    ],
)
def test_scaffolds_that_were_not_delivered_alike_are_not_compared(other: Row, why: str) -> None:
    """The screening shows the difference. Neither gains nor bands are compared, and each sentence gives the reason."""
    sound = FORM | {"taught": True}
    form = [
        sound | {"arm": "panel", "sampled": SCREENING},
        sound | {"arm": "thinking", "sampled": SCREENING} | other,
        *(sound | {"arm": arm, "sampled": TRAINED} for arm in PAIR),
    ]
    tables: dict[str, Any] = {
        "difference_of_gains": [APART],
        "summary": [SUMMARY | {"arm": arm, "problems": 100} for arm in PAIR],
    }
    gains, bands, *_ = sentences(**tables, form=form)
    assert gains.startswith("Whether panel gained more than thinking is not stated") and why in gains
    assert "Whether one arm has more to learn from is not stated" in bands and why in bands
    own = sentences(**tables, audit=[{"code": "gate", "fact": "6 % of the rollouts of thinking"}])[0]
    assert own.endswith("is not stated: the study's own gate was not kept: 6 % of the rollouts of thinking.")


# Three arms: each pair has its own figures. An arm without answers removes only its own pairs.

THREE = ("panel", "thinking", "plain")


def of_three(mute: float = 0.0, **tables: list[Row]) -> str:
    form = [
        FORM | {"arm": arm, "sampled": where, "no_answer": mute if arm == "plain" else 0.0}
        for arm in THREE
        for where in (SCREENING, START)
    ]
    return text(form=form, summary=[SUMMARY | {"arm": arm, "problems": 100} for arm in THREE], **tables)


def band_tests() -> list[Row]:
    nothing = dict.fromkeys(("low", "high", "p_value", "p_adjusted", "estimate"))
    return [
        nothing | {"arm": arm, "other": other} | row
        for n, (arm, other) in enumerate(combinations(THREE, 2), start=1)
        for row in (
            {"metric": "ratio", "estimate": float(n)},
            {"metric": "mcnemar", "p_value": 1e-9, "p_adjusted": 3e-9},
        )
    ]


def test_every_pair_has_its_verdict_on_bands_and_an_arm_without_answers_removes_its_own() -> None:
    found = of_three(band_tests=band_tests())
    assert "and so a gradient; that is 1.00 times as many for panel as for thinking, more than chance explains" in found
    assert "; 2.00 times as many for panel as for plain, more" in found
    assert "; 3.00 times as many for thinking as for plain, more" in found
    found = of_three(mute=0.9, band_tests=band_tests())
    assert "1.00 times as many for panel as for thinking" in found and "as for plain" not in found
    assert "Other pairs of arms are not compared: 90 % of the rollouts of plain give no answer" in found


def widths(p: float) -> list[Row]:
    return [WIDTH | {"arm": arm, "other": other, "p_adjusted": p} for arm, other in combinations(THREE, 2)]


def closures(p: float) -> list[Row]:
    return [
        {"arm": arm, "other": other, "step": 0, "other_step": 0, "k": 8, "metric": metric, "p_adjusted": p}
        | {"estimate": pp / 100, "estimate_low": (pp - 1) / 100, "estimate_high": (pp + 1) / 100}
        for n, (arm, other) in enumerate(combinations(THREE, 2))
        for metric, pp in (("closure", -5 + 7 * n), ("closure_of_shift", 0), ("closure_beyond_shift", -5 + 7 * n))
    ]


@pytest.mark.parametrize("lacking", ["closure", "closure_beyond_shift"])
def test_no_closure_is_put_together_of_two_pairs(lacking: str) -> None:
    gaps = [r for r in closures(0.01) if (r["other"], r["metric"]) != ("thinking", lacking)]
    assert "pass@k" not in of_three(diversity=widths(0.01), gaps=gaps).split("Traces of ")[1]
