"""The published study, replayed: every stage against the figures that were printed, to their last digit."""

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.analysis import replay as command
from flows.replay import NEEDED, replay
from flows.upkeep.store_audit import audit
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.estimates import Band
from tasks.stage import Progress

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "published.json").read_text())


def where(rows: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    return [row for row in rows if fields.items() <= row.items()]


def test_bands_and_the_splits_that_follow_from_them(result: dict[str, Any]) -> None:
    for arm in ("panel", "thinking"):
        rows = where(result["crosstab"], metric="count", arm=arm, source="all")
        assert [row["count"] for row in rows] == GOLDEN["bands"][arm]
    (ratio,) = where(result["crosstab"], metric="ratio")
    assert [round(ratio[end], 2) for end in ("estimate", "low", "high")] == [GOLDEN["bands"]["ratio"], 1.58, 2.12]
    cells = {(row["band"], row["other_band"]): row["count"] for row in where(result["crosstab"], metric="cell")}
    assert [[cells[a, b] for b in Band] for a in Band] == GOLDEN["crosstab"]
    # exact McNemar: 310 discordant one way, 137 the other
    (mcnemar,) = where(result["crosstab"], metric="mcnemar")
    assert math.isclose(mcnemar["p_value"], 1.7236688705694808e-16, rel_tol=1e-9)
    pools = {name: {row["problem_id"] for row in where(result["pools"], pool=name)} for name in GOLDEN["splits"]}
    assert {name: len(ids) for name, ids in pools.items()} == GOLDEN["splits"]
    for rows in result["bands"]:
        live = {row["problem_id"] for row in where(rows, band="variance")} - pools["heldout_eval"]
        assert live == pools[f"{rows[0]['arm']}_train"]


def compared(result: dict[str, Any], name: str) -> dict[str, Any]:
    rows = where(result["comparisons"][name], metric="diversity", basis="all", arm="panel", other="thinking")
    (row,) = rows
    return row


@pytest.mark.parametrize("name", GOLDEN["diversity"])
def test_diversity_with_both_p_values(result: dict[str, Any], name: str) -> None:
    printed = GOLDEN["diversity"][name]
    row = compared(result, name)
    assert (round(row["mean"], 3), round(row["other_mean"], 3)) == (printed["panel"], printed["thinking"])
    # the write-up divides the rounded means on AIME: 75.5 there is 75.55 here
    assert abs(100 * row["relative"] - printed["relative_pct"]) < 0.15
    assert (round(row["t"], 2), row["n"]) == (printed["t"], printed["n"])
    assert math.isclose(row["p_normal"], printed["p_printed"], rel_tol=1e-6)
    assert row["p_t"] > 50 * row["p_normal"]
    assert row["p_adjusted"] >= row["p_value"] and row["adjusted_p_corrected"] == row["adjusted_p"]


@pytest.mark.parametrize("name", GOLDEN["passk"])
def test_pass_at_k_gaps_and_closures(result: dict[str, Any], name: str) -> None:
    printed, rows = GOLDEN["passk"][name], where(result["contrasts"][name], source="all")
    gaps = [100 * row["estimate"] for row in where(rows, metric="gap")]
    (closure,), (monotone,) = (where(rows, metric=metric) for metric in ("closure", "monotone"))
    assert (gaps[0], gaps[-1]) == pytest.approx((printed["first"], printed["last"]), abs=0.05 + 1e-9)
    assert abs(100 * closure["estimate"] - printed["closure"]) <= 0.1
    assert monotone["reason"] == "narrows at every k"


def test_every_printed_pass_at_k(result: dict[str, Any], published: Path) -> None:
    aime = json.loads((published / "reports/pass_at_k_aime/results.json").read_text())["rows"]
    strata, level5 = (
        s["rows"] for s in json.loads((published / "reports/pass_at_k_crossover/results.json").read_text())
    )
    for name, rows in (("aime", aime), ("math500_stratified", strata), ("math500_l5", level5)):
        for arm in ("panel", "thinking"):
            curve = where(result["passk"][name], metric="pass@k", source="all", arm=arm)
            printed = [r[f"{arm}_pass_at_k"] for r in rows]
            assert [c["estimate"] for c in curve] == pytest.approx(printed, abs=1e-12)


def signed(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def test_what_the_page_says_of_closures_is_what_is_found(result: dict[str, Any]) -> None:
    """Beside each closure stands what a constant shift of logits would close, and what is beyond it."""
    page = " ".join((Path(__file__).parents[2] / "docs" / "published-study.md").read_text().split())
    (ratio,), (mcnemar,) = (where(result["crosstab"], metric=metric) for metric in ("ratio", "mcnemar"))
    said = [f"{ratio['estimate']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"]
    for name, rows in result["contrasts"].items():
        found = {row["metric"]: row for row in where(rows, source="all")}
        said += [
            f"{signed(found[m]['estimate'])} [{signed(found[m]['low'])}, {signed(found[m]['high'])}]"
            for m in ("closure", "closure_beyond_shift")
        ]
        said.append(signed(found["closure_of_shift"]["estimate"]))
        assert found["closure_beyond_shift"]["p_adjusted"] > 0.05  # "no evidence of width"
        assert name != "aime" or found["closure"]["low"] < 0 < found["closure"]["high"]
    said.append(f"exact McNemar {_corrected(mcnemar)}")
    for name in ("diversity_analysis", "diversity_analysis_aime"):
        found = compared(result, name)
        said += [f"p = {found['p_t']:.1e}", _corrected(found)]
    assert [one for one in said if one not in page] == []


def _corrected(row: dict[str, Any]) -> str:
    return f"p = {row['p_value']:.1e}, corrected {row['p_adjusted']:.1e}"


def test_the_command_checks_every_published_figure(published: Path, store: Store, result: dict[str, Any]) -> None:
    done = CliRunner().invoke(command, [str(published), "--json", "--root", str(store.root)])
    assert done.exit_code == 0 and json.loads(done.stdout).keys() == result.keys()
    lines = CliRunner().invoke(command, [str(published), "--root", str(store.root)]).stdout.splitlines()
    assert sum(line.startswith("holds ") for line in lines) > 60
    assert any(line.startswith("encoder_coverage: ") for line in lines)


def test_a_subset_is_fair_on_aime_only_where_n_is_equal(result: dict[str, Any]) -> None:
    for name, printed in GOLDEN["solved_by"].items():
        counts = Counter(row["solved_by"] for row in result["solved_by"][name])
        assert counts == {who: n for who, n in printed.items() if n}
    aime, level5 = result["solved_by"]["aime"], result["solved_by"]["math500_l5"]
    assert all(row["equal_n"] for row in aime) and not all(row["equal_n"] for row in level5)
    assert sum(row["chance_of_arm"] for row in level5) == pytest.approx(0.7770788912579958 * 134)


def test_trajectory_with_wilson_intervals(result: dict[str, Any]) -> None:
    points = where(result["curves"], series="heldout", source="all")
    assert [round(100 * p["estimate"]) for p in points] == GOLDEN["trajectory"]["all"]
    assert [p["step"] for p in points] == list(range(0, 100, 10))
    first = points[0]
    assert (round(first["low"], 4), round(first["high"], 4)) == (0.0853, 0.2214)  # Wilson of 14/100
    gains = {row["source"]: row for row in where(result["curves"], series="gain")}
    for source, gain in GOLDEN["gains_pp"].items():
        assert 100 * gains[source]["estimate"] == pytest.approx(gain)
    for source, share in GOLDEN["shares_pct"].items():
        assert 100 * gains[source]["training_share"] == pytest.approx(share, abs=0.06)
    # the range of p that unpublished pairing leaves
    assert gains["all"]["p_value"] == pytest.approx(0.0315, abs=1e-4)
    assert gains["hmmt"]["p_value"] == 1.0


def test_token_table_is_consistent(result: dict[str, Any]) -> None:
    off = where(result["tokens"], holds=False)
    assert all(row["detail"] for row in off)
    assert [(c["bench"], c["printed"], c["follows"]) for c in off] == [("math", 318, 626)]  # 4 of panel's 8 were paired


def test_a_second_replay_makes_nothing(published: Path, store: Store) -> None:
    events: list[Progress] = []
    replay(published, store, events.append)
    assert {e.event for e in events} == {"reused"}


def test_a_folder_that_is_not_the_study(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"of \d+ published files are missing, for example"):
        replay(tmp_path, Store(tmp_path / "store"))
    with pytest.raises(UserError, match="is not a folder"):
        replay(tmp_path / "nothing", Store(tmp_path / "store"))


def test_a_damaged_file_is_named(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    for path in sorted({*NEEDED, *(p.relative_to(published).as_posix() for p in published.rglob("summary.json"))}):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(published / path, folder / path)
    for text, message in (
        ("{broken\n", "per_problem.jsonl: not the published file: .*JSON"),
        ('{"uid":"a","source":"b","n_samples":8,"n_correct":0,"band":"all_one"}\n', "but is called all_one"),
    ):
        (folder / "reports/variance_band/panel_g8/per_problem.jsonl").write_text(text)
        with pytest.raises(UserError, match=message):
            replay(folder, Store(tmp_path / "store"))


# What the audit finds by itself in the published study: every known fault, and nothing else.


DISCREPANCIES = json.loads((Path(__file__).parents[1] / "golden" / "discrepancies.json").read_text())


def test_the_audit_knows_every_known_discrepancy(published: Path, store: Store, result: dict[str, Any]) -> None:
    """What is wrong in the published files is off or found; what nothing published can decide says so."""
    audited = audit(store)
    status = {c["id"]: c["status"] for c in audited["claims"]}
    missed = []
    for known in DISCREPANCIES:
        if "claim" in known:
            seen = status[known["claim"]] == ("unknown" if known.get("cannot") else "off")
        else:
            seen = any(f["code"] == known["finding"] and known["says"] in f["fact"] for f in audited["findings"])
        missed += [] if seen else [known["what"]]
    assert missed == []
    decided = [known for known in DISCREPANCIES if not known.get("cannot")]
    assert (len(decided), len(DISCREPANCIES)) == (43, 45)
    named = {known.get("claim") for known in DISCREPANCIES}
    assert {claim for claim, said in status.items() if said == "off"} <= named  # no figure is off that is not known
    assert {f["code"] for f in audited["findings"]} == {k["finding"] for k in DISCREPANCIES if "finding" in k}
