"""Traces: one problem's rollouts side by side, found by source, band, verdict or text; each view has an address."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import streamlit as st

from dashboards.pages.parts import chosen, remember, root, rows_of
from dashboards.text import MOST, formula, literal, marked
from storage.reading.figures import BANDS
from storage.reading.query_cache import sources

SETS = {"final": "before and after", "screenings": "screening", "evaluations": "held-out curve"}
VERDICTS = ("correct", "wrong", "no_answer", "ambiguous", "timeout", "ungradable")
COLOURS = {"correct": "green", "wrong": "red"}
SHOWN_AT_ONCE = 4


def page() -> None:
    report = chosen()
    if report is None:
        return
    kind, filters = _filters(report.arms)
    if not sources(root(), report.ref, (kind,)):
        st.info(
            f"This run holds no rollouts of {SETS[kind]}; an imported study has none at all, and"
            " `varband export gallery transcripts.json` shows the ones that it printed."
        )
        return
    found = rows_of("app_problems", filters | {"set": kind})
    if found is None:
        return
    if found.num_rows == 0:
        st.info("No problem fits these filters.")
        return
    problems = {row["problem_id"]: row for row in found.to_pylist()}
    asked = st.query_params.get("problem")
    if asked and asked not in problems:
        st.info(f"Problem `{asked[:80]}` does not fit the filters; showing the first that does.")
    ids = list(problems)
    problem = st.selectbox(
        f"Problem ({len(ids):,}{' or more' if len(ids) == 2000 else ''} fit)",
        ids,
        index=ids.index(asked) if asked in problems else 0,
        format_func=lambda p: _line(problems[p]),
    )
    if problem is None:
        return
    remember(problem=problem, set=kind, **{name: _text(value) for name, value in filters.items()})
    _problem(problem)
    _side_by_side(kind, problem)


def _line(row: dict[str, Any]) -> str:
    return f"{row['source']} · {row['problem_id'][:12]} · {row['correct']} · {row['problem'][:80]}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _filters(arms: tuple[str, ...]) -> tuple[str, dict[str, object]]:
    """What the address says, changed by what is picked."""
    known = rows_of("app_sources")
    names = [] if known is None else known["source"].to_pylist()
    kinds = list(SETS)
    columns = st.columns([1.4, 1, 1, 1, 1, 1.4])
    kind = columns[0].selectbox(
        "Rollouts of", kinds, format_func=SETS.__getitem__, index=_index(kinds, st.query_params.get("set")) or 0
    )
    picked: dict[str, object] = {}
    for column, name, choices in (
        (columns[1], "source", names),
        (columns[2], "arm", list(arms)),
        (columns[3], "band", list(BANDS)),
        (columns[4], "verdict", list(VERDICTS)),
    ):
        picked[name] = column.selectbox(
            name.capitalize(), choices, index=_index(choices, st.query_params.get(name)), placeholder="any"
        )
    picked["search"] = (
        columns[5].text_input("Search", st.query_params.get("search", ""), placeholder="text or id") or None
    )
    return kind, picked


def _index(choices: Sequence[str], value: str | None) -> int | None:
    return choices.index(value) if value in choices else None


def _problem(problem: str) -> None:
    rows = rows_of("app_problem", {"problem": problem})
    if rows is None or rows.num_rows == 0:
        return
    row = rows.to_pylist()[0]
    with st.container(border=True):
        st.markdown(marked(row["problem"]))
        st.markdown(f"**gold** {formula(row['gold'])} · {row['source']} · `{row['problem_id']}`")


def _side_by_side(kind: str, problem: str) -> None:
    rows = rows_of("app_rollouts", {"set": kind, "problem": problem, "most": MOST})
    if rows is None:
        return
    policies = [(key, list(some)) for key, some in groupby(rows.to_pylist(), key=lambda r: (r["arm"], r["step"]))]
    if not policies:
        st.info("No rollout of this problem in this set.")
        return
    most = max(len(some) for _, some in policies)
    first = 0
    if most > SHOWN_AT_ONCE:
        starts = list(range(0, most, SHOWN_AT_ONCE))
        first = st.select_slider("Rollouts", starts, format_func=lambda i: f"{i}–{min(i + SHOWN_AT_ONCE, most) - 1}")
    for column, ((arm, step), some) in zip(st.columns(len(policies)), policies, strict=True):
        with column:
            right = sum(row["verdict"] == "correct" for row in some)
            st.subheader(f"{arm}" + (f" · step {step}" if step else " · start"), anchor=False)
            st.caption(f"{right} of {len(some)} correct")
            for row in some[first : first + SHOWN_AT_ONCE]:
                _rollout(row)


def _rollout(row: dict[str, Any]) -> None:
    with st.container(border=True):
        colour = COLOURS.get(row["verdict"], "orange")
        cut = " · cut off at max_tokens" if row["finish"] == "length" else ""
        tags = "" if row["tag_valid"] else " :orange-badge[tags malformed]"
        st.markdown(f":{colour}-badge[{row['verdict']}]{tags} #{row['rollout']} · {row['num_tokens']:,} tokens{cut}")
        st.markdown(marked(row["completion"] or "(empty)"))
        if row["chars"] and row["chars"] > MOST:
            st.caption(f"Shown: the first {MOST:,} of {row['chars']:,} characters; `varband store sql` gives the rest.")
        answer = f"answer {formula(row['answer'])} · " if row["answer"] else ""
        st.caption(f"{answer}{literal(row['reason'] or '')}")
