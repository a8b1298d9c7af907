"""Sentences about several arms: each pair has its own figures, and an arm that is mute silences its own pairs alone."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from tasks.report.findings import SCREENING, START, answer

Row = dict[str, Any]
ARMS = ("panel", "thinking", "plain")
SOUND = {"no_answer": 0.0, "invalid_tags": 0.0, "truncated": 0.0, "accuracy": 0.3, "taught": False, "seed": None}


def said_of(**tables: list[Row]) -> str:
    summary = [{"arm": arm, "problems": 100, "variance": 30, "gain": None, "seed": None} for arm in ARMS]
    found = {"summary": summary} | tables
    return " ".join(answer(lambda name: pa.Table.from_pylist(found.get(name.removeprefix("report_"), []))))


def form(**mute: float) -> list[Row]:
    return [
        SOUND | {"arm": arm, "sampled": where, "no_answer": mute.get(arm, 0.0)}
        for arm in ARMS
        for where in (SCREENING, START)
    ]


def band_tests() -> list[Row]:
    nothing = {"low": None, "high": None, "p_value": None, "p_adjusted": None}
    rows = []
    for n, (arm, other) in enumerate(combinations(ARMS, 2), start=1):
        rows.append(nothing | {"metric": "ratio", "arm": arm, "other": other, "estimate": float(n)})
        p = {"p_value": 1e-9, "p_adjusted": 3e-9, "estimate": None}
        rows.append(nothing | {"metric": "mcnemar", "arm": arm, "other": other} | p)
    return rows


def test_every_pair_has_its_verdict_on_bands() -> None:
    said = said_of(form=form(), band_tests=band_tests())
    assert "and so a gradient; that is 1.00 times as many for panel as for thinking, more than chance explains" in said
    assert "; 2.00 times as many for panel as for plain, more" in said
    assert "; 3.00 times as many for thinking as for plain, more" in said


def test_a_mute_arm_silences_its_own_pairs_alone() -> None:
    said = said_of(form=form(plain=0.9), band_tests=band_tests())
    assert "1.00 times as many for panel as for thinking" in said and "as for plain" not in said
    assert "Of pairs with another arm it is not told: 90 % of the rollouts of plain give no answer" in said


def widths(p: float) -> list[Row]:
    told = {"metric": "diversity", "basis": "equal_n", "step": 0, "other_step": 0, "n": 50, "p_adjusted": p}
    told |= {"mean": 0.2, "other_mean": 0.1, "difference": 0.1, "difference_low": 0.05, "difference_high": 0.15}
    return [told | {"arm": arm, "other": other} for arm, other in combinations(ARMS, 2)]


def closures(p: float) -> list[Row]:
    rows = []
    for n, (arm, other) in enumerate(combinations(ARMS, 2)):
        for metric, pp in (("closure", -5 + 7 * n), ("closure_of_shift", 0), ("closure_beyond_shift", -5 + 7 * n)):
            ends = {"estimate": pp / 100, "estimate_low": (pp - 1) / 100, "estimate_high": (pp + 1) / 100}
            pair = {"arm": arm, "other": other, "step": 0, "other_step": 0, "k": 8}
            rows.append(pair | ends | {"metric": metric, "p_adjusted": p})
    return rows


def test_a_pairs_closure_is_its_own() -> None:
    said = said_of(form=form(), diversity=widths(0.01), gaps=closures(0.01))
    first, second, third = (part for part in said.split("Traces of ")[1:])
    assert "those of thinking" in first and "widened by 5.0 pp" in first
    assert "those of plain" in second and "closed by 2.0 pp" in second
    assert third.startswith("thinking") and "closed by 9.0 pp" in third
    assert "no evidence" not in said


@pytest.mark.parametrize("lacking", ["closure", "closure_beyond_shift"])
def test_no_closure_is_put_together_of_two_pairs(lacking: str) -> None:
    gaps = [r for r in closures(0.01) if (r["other"], r["metric"]) != ("thinking", lacking)]
    first = said_of(form=form(), diversity=widths(0.01), gaps=gaps).split("Traces of ")[1]
    assert "pass@k" not in first


def test_what_is_corrected_away_is_no_evidence_of_width() -> None:
    said = said_of(form=form(), diversity=widths(0.3), gaps=closures(0.4))
    assert said.count("no evidence of a difference once all are counted") == 3
    assert said.count("no evidence of width once all contrasts are counted") == 3
