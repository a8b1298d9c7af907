"""A contrast of form is not told as one of ability: shares without an answer or valid tags qualify what is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.kinds import Rollouts
from storage.artifacts.store import Store
from storage.sql import named, query
from tasks.designs import findings_of
from tasks.engines.toolbox import Toolbox
from tasks.measures.bands import bands_of, classify_bands, crosstab_of
from tasks.measures.groups import form_of
from tasks.report.findings import SCREENING, START, TRAINED, answer
from tasks.stage import Progress, Session, session
from tests.dashboards.synthetic import put
from tests.measures.conftest import rows_of

G = 8
NOTHING = pa.table({"adapter": pa.array([], pa.string())})


def screened(arm: str, groups: list[str], tags: bool = True) -> pa.Table:
    """One group a text, one letter a rollout: c(orrect), w(rong), n(o answer)."""
    rows = [(f"p{i:04d}", g, letter) for i, letters in enumerate(groups) for g, letter in enumerate(letters)]
    n = len(rows)
    letters = [letter for _, _, letter in rows]
    return pa.table(
        {
            "problem_id": [problem for problem, _, _ in rows],
            "source": ["amc"] * n,
            "arm": [arm] * n,
            "adapter": pa.nulls(n, pa.string()),
            "step": pa.array([0] * n, pa.int32()),
            "seed": pa.array([0] * n, pa.int64()),
            "rollout": pa.array([g for _, g, _ in rows], pa.int32()),
            "correct": [letter == "c" for letter in letters],
            "verdict": [{"c": "correct", "w": "wrong", "n": "no_answer"}[letter] for letter in letters],
            "tag_valid": [tags and letter != "n" for letter in letters],
            "finish": ["stop"] * n,
            "num_tokens": pa.array([10] * n, pa.int32()),
        }
    )


def said_of(*screenings: pa.Table) -> list[str]:
    """The report's sentences about these screenings; nothing was trained or embedded."""
    arms = [table["arm"][0].as_py() for table in screenings]
    crosstab = crosstab_of(pa.concat_tables([bands_of(table) for table in screenings]), 16)
    banded = pa.concat_tables([bands_of(table) for table in screenings])
    live = query("select arm, band, count(*) as n from b where band = 'variance' group by all", b=banded)
    counts = {row["arm"]: row for row in live.to_pylist()}
    problems = len(set(screenings[0]["problem_id"].to_pylist()))
    summary = [{"arm": a, "problems": problems, "variance": counts[a]["n"], "gain": None, "seed": None} for a in arms]
    form = query(
        named("report_form"),
        screenings=pa.concat_tables(screenings),
        final=screenings[0].slice(0, 0),
        trainings=pa.table({"ref": pa.array([], pa.string()), "seed": pa.array([], pa.int64())}),
        arms=pa.table({"arm": arms, "place": list(range(len(arms)))}),
    )
    tables = {
        "report_summary": pa.Table.from_pylist(summary),
        "report_band_tests": query(named("report_band_tests"), crosstab=crosstab),
        "report_form": form,
    }
    ask: Callable[[str], pa.Table] = lambda name: tables.get(name, pa.table({}))  # noqa: E731
    return answer(ask)


def test_an_arm_that_never_answers_is_no_finding() -> None:
    """3,504 of thinking's 4,000 rollouts have no answer and none has valid tags; panel has 26.67 times as many bands."""
    mute = screened("thinking", ["cccccccw"] * 6 + ["cccccccc"] * 56 + ["n" * G] * 438, tags=False)
    other = screened("panel", ["ccccwwww"] * 160 + ["w" * G] * 340)
    assert form_of(mute) == {
        "rollouts": 4000,
        "accuracy": 0.1225,
        "no_answer": 0.876,
        "invalid_tags": 1.0,
        "truncated": 0.0,
    }
    said = " ".join(said_of(other, mute))
    assert "100 % of the rollouts of thinking have no valid tags (at most 50 %)" in said
    assert "87.6 % of the rollouts of thinking give no answer (at most 50 %)" in said
    assert "what differs is form and not what is solved" in said
    for claim in ("26.67", "times as many", "more than chance explains"):
        assert claim not in said
    answering = screened("thinking", ["cccccccw"] * 6 + ["w" * G] * 494)
    told = " ".join(said_of(other, answering))
    assert re.search(r"26.67 times as many for panel as for thinking \[\d+.\d\d, \d+.\d\d\], more than chance", told)


def test_a_smaller_difference_of_form_stands_beside_the_contrast() -> None:
    some = screened("panel", ["cccccccw"] * 40 + ["w" * G] * 40 + ["n" * G] * 20)
    other = screened("thinking", ["ccccwwww"] * 80 + ["w" * G] * 20)
    said = " ".join(said_of(other, some))
    assert "0.50 times as many for panel as for thinking" in said
    assert "this is also a difference of form: 0 % of thinking's rollouts gave no answer and 20 % of panel's" in said


def test_one_of_three_arms_that_answers_less_is_told() -> None:
    quiet = screened("alone", ["cccccccw"] * 40 + ["n" * G] * 45 + ["w" * G] * 15)
    arms = [screened(arm, ["ccccwwww"] * 80 + ["w" * G] * 20) for arm in ("panel", "thinking")]
    said = " ".join(said_of(*arms, quiet))
    told = "0 % of panel's rollouts gave no answer, 0 % of thinking's and 45 % of alone's"
    assert f"this is also a difference of form: {told}" in said


def test_width_is_told_with_the_difference_of_form() -> None:
    alike = {"sampled": START, "seed": None, "invalid_tags": 0.0, "truncated": 0.0, "accuracy": 0.3, "taught": False}
    form = [alike | {"arm": "panel", "no_answer": 0.3}, alike | {"arm": "thinking", "no_answer": 0.0}]
    compared = {"metric": "diversity", "arm": "panel", "other": "thinking", "step": 0, "other_step": 0}
    compared |= {"basis": "equal_n", "mean": 0.1, "other_mean": 0.05, "difference": 0.05, "n": 20}
    compared |= {"difference_low": 0.04, "difference_high": 0.06}
    tables = {"report_form": form, "report_diversity": [compared]}
    said = " ".join(answer(lambda name: pa.Table.from_pylist(tables.get(name, []))))
    assert "lay 0.1 apart and those of thinking 0.05" in said
    assert "this is also a difference of form: 30 % of panel's rollouts gave no answer and 0 % of thinking's" in said


def test_a_gain_of_an_arm_that_hardly_answers_is_one_of_form() -> None:
    """Mute before and after, so that its share of answers hardly moved: what is a gain of it?"""
    alike = {"seed": None, "invalid_tags": 0.4, "truncated": 0.0, "accuracy": 0.02, "taught": False}
    form = [
        alike | {"arm": arm, "sampled": sampled, "no_answer": share, "seed": 0 if sampled == TRAINED else None}
        for arm, share in (("panel", 0.0), ("thinking", 0.9))
        for sampled in (START, TRAINED)
    ]
    gains = {
        "heldout_before": 0.02,
        "heldout_after": 0.06,
        "gain": 0.04,
        "gain_low": 0.01,
        "gain_high": 0.07,
        "updates": 4,
    }
    summary = [{"arm": arm, "seed": 0, "problems": 100, "variance": 10} | gains for arm in ("panel", "thinking")]
    tables = {"report_form": form, "report_summary": summary}
    said = " ".join(answer(lambda name: pa.Table.from_pylist(tables.get(name, []))))
    assert "Training moved held-out accuracy of panel from 2 % to 6 %" in said
    assert "90 % of the rollouts of thinking give no answer (at most 50 %): a gain is then one of form" in said


def test_arms_alike_in_form_are_compared_as_they_are() -> None:
    one, other = (
        screened("panel", ["cccccccw"] * 40 + ["w" * G] * 60),
        screened("thinking", ["cw" * 4] * 80 + ["w" * G] * 20),
    )
    said = " ".join(said_of(other, one))
    assert "0.50 times as many" in said
    assert "form" not in said


@pytest.mark.parametrize(
    ("no_answer", "invalid", "found"), [(0.876, 1.0, 1), (0.12, 0.0, 1), (0.0, 0.6, 1), (0.05, 0.2, 0)]
)
def test_the_audit_judges_form(no_answer: float, invalid: float, found: int) -> None:
    row = {
        "arm": "panel",
        "problems": "pool",
        "rollouts": 4000,
        "no_answer": no_answer,
        "invalid_tags": invalid,
        "truncated": 0.0,
        "place": "rollouts-1",
    }
    findings = findings_of({"form": [row]}).to_pylist()
    assert [f["code"] for f in findings] == ["form"] * found
    if found:
        assert f"{100 * no_answer:.1f} % of the 4000 rollouts of panel on pool gave no answer" in findings[0]["fact"]


def test_screening_tells_its_form_while_it_is_banded(tmp_path: Path) -> None:
    heard: list[Progress] = []
    store = Store(tmp_path / "store")
    store.prepare()
    with session(Session(store, Toolbox(), listener=heard.append)):
        classify_bands(rollouts=put(store, Rollouts, rows_of({"a": "cwww"})))
    told = [event.detail for event in heard if event.event == "noted"]
    assert told == ["4 rollouts: 0.0 % without an answer, 0.0 % without valid tags, 0.0 % cut off"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            {"taught": False},
            "thinking starts without a lesson, and panel had one, so what differs is not their scaffolds",
        ),
        ({"truncated": 0.4}, "40 % of thinking (at most 25 % apart), so what differs is form and not what is solved"),
        (
            {"invalid_tags": 1.0},
            "100 % of the rollouts of thinking have no valid tags (at most 50 %), so what differs is",
        ),
    ],
)
def test_scaffolds_that_were_not_delivered_alike_are_not_compared(other: dict[str, object], why: str) -> None:
    """Seen at screening: neither bands nor gains nor width are told, each with the reason."""
    sound = {"sampled": SCREENING, "seed": None, "no_answer": 0.0, "invalid_tags": 0.0, "truncated": 0.0}
    sound |= {"accuracy": 0.3, "taught": True}
    form = [sound | {"arm": "panel"}, sound | {"arm": "thinking"} | other]
    trained = [row | {"sampled": TRAINED, "taught": True, "invalid_tags": 0.0, "truncated": 0.0} for row in form]
    gained = {"arm": "panel", "other": "thinking", "source": "all", "more_gain": 0.1, "more_gain_low": 0.05, "n": 100}
    gained |= {"more_gain_high": 0.15, "p_adjusted": 0.001, "reason": None, "holds_for": "the recipe, by 6 seeds"}
    gained |= {"detectable_gain": 0.03, "p_equivalent_corrected": 0.9}
    tables = {"report_form": form + trained, "report_difference_of_gains": [gained]}
    tables["report_summary"] = [
        {"arm": arm, "problems": 100, "variance": 30, "gain": None, "seed": None} for arm in ("panel", "thinking")
    ]
    said = answer(lambda name: pa.Table.from_pylist(tables.get(name, [])))
    strict = tables | {"report_form": [], "report_audit": [{"code": "gate", "fact": "6 % of the rollouts of thinking"}]}
    own = answer(lambda name: pa.Table.from_pylist(strict.get(name, [])))[0]
    assert own.endswith("is not told: the study's own gate was not kept: 6 % of the rollouts of thinking.")
    assert said[0].startswith("Whether panel gained more than thinking is not told") and why in said[0]
    assert "Whether one gives more to learn from is not told" in said[1] and why in said[1]
