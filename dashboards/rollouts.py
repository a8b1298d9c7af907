"""Pages of single rollouts. Traces: one problem's rollouts side by side, filtered by source, band, verdict or text.
Search: accuracy against tokens by method, and the steps of one problem's search. Each view has its own URL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import streamlit as st

from dashboards.parts import chosen, remember, root, rows_of, selected, show_section
from dashboards.text import MOST, formula, literal, marked
from storage.reading.figures import BANDS, on_page
from storage.reading.query_cache import sources

SETS = {"final": "before and after", "screenings": "screening", "evaluations": "held-out curve"}
VERDICTS = ("correct", "wrong", "no_answer", "ambiguous", "timeout", "ungradable")
COLOURS = {"correct": "green", "wrong": "red"}
#: Number of rollouts of each policy on one page.
ROLLOUTS_AT_ONCE = 4
#: The name of a search: its method, arm, step and seed.
NAMED = "{} · {} · step {} · seed {}"


def traces() -> None:
    report = chosen()
    if report is None:
        return
    kind, filters = _filters(report.ref, report.arms)
    if not sources(root(), report.ref, (kind,)):
        st.info(f"This run has no rollouts of {SETS[kind]}.")
        return
    problems = {row["problem_id"]: row for row in rows_of(report.ref, "app_problems", filters).to_pylist()}
    if not problems:
        st.info("No problem fits these filters.")
        return
    wanted = st.query_params.get("problem")
    if wanted and wanted not in problems:
        st.info(f"Problem `{wanted[:80]}` does not fit the filters; showing the first that does.")
    fitting = f"{len(problems):,}{' or more' if len(problems) == 2000 else ''}"
    problem = selected(f"Problem ({fitting} fit)", list(problems), "problem", format_func=lambda p: _line(problems[p]))
    remember(problem=problem, **filters)
    for row in rows_of(report.ref, "app_problem", {"problem": problem}).to_pylist():
        with st.container(border=True):
            st.markdown(marked(row["problem"]))
            st.markdown(f"**gold** {formula(row['gold'])} · {row['source']} · `{row['problem_id']}`")
    _side_by_side(rows_of(report.ref, "app_rollouts", {"set": kind, "problem": problem, "most": MOST}).to_pylist())


def _line(row: dict[str, Any]) -> str:
    return f"{row['source']} · {row['problem_id'][:12]} · {row['correct']} · {row['problem'][:80]}"


def _filters(report: str, arms: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return (set of rollouts, filters of the query). The URL gives the first values of the filters."""
    names = [row["source"] for row in rows_of(report, "app_sources").to_pylist()]
    first, *middle, last = st.columns([1.4, 1, 1, 1, 1, 1.4])
    with first:
        kind = selected("Rollouts of", list(SETS), "set", format_func=SETS.__getitem__)
    picked: dict[str, object] = {"set": kind}
    choices = {"source": names, "arm": list(arms), "band": list(BANDS), "verdict": list(VERDICTS)}
    for column, (name, values) in zip(middle, choices.items(), strict=True):
        with column:
            picked[name] = selected(name.capitalize(), values, name, first=None, placeholder="any")
    text = last.text_input("Search", st.query_params.get("search", ""), placeholder="text or id")
    return kind, picked | {"search": text or None}


def _side_by_side(rows: Sequence[dict[str, Any]]) -> None:
    policies = [(key, list(some)) for key, some in groupby(rows, key=lambda r: (r["arm"], r["step"]))]
    if not policies:
        st.info("No rollout of this problem in this set.")
        return
    most, first = max(len(some) for _, some in policies), 0
    if most > ROLLOUTS_AT_ONCE:
        starts = list(range(0, most, ROLLOUTS_AT_ONCE))
        first = st.select_slider("Rollouts", starts, format_func=lambda i: f"{i}–{min(i + ROLLOUTS_AT_ONCE, most) - 1}")
    for column, ((arm, step), some) in zip(st.columns(len(policies)), policies, strict=True):
        with column:
            right = sum(row["verdict"] == "correct" for row in some)
            st.subheader(f"{arm}" + (f" · step {step}" if step else " · start"), anchor=False)
            st.caption(f"{right} of {len(some)} correct")
            for row in some[first : first + ROLLOUTS_AT_ONCE]:
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


def search() -> None:
    report = chosen()
    if report is None:
        return
    if not sources(root(), report.ref, ("searches",)):
        st.info("This run has no search. To run one: `varband run PROFILE --set search.methods=majority,likeliest`.")
        return
    for section in on_page("search"):
        show_section(section)
    _tree(report.ref)


def _tree(report: str) -> None:
    st.subheader("One problem's search", anchor="tree")
    rows = rows_of(report, "app_searches").to_pylist()
    if not rows:
        return
    of = [(r["method"], r["arm"], r["step"], r["seed"]) for r in rows]
    policy = st.selectbox("Search", list(dict.fromkeys(of)), format_func=lambda one: NAMED.format(*one))
    ids = [r["problem_id"] for r, its in zip(rows, of, strict=True) if its == policy]
    problem = selected("Problem", ids, "problem")
    remember(problem=problem)
    of_policy = dict(zip(("method", "arm", "step", "seed"), policy, strict=True))
    nodes = rows_of(report, "app_search_tree", {"problem": problem, **of_policy}).to_pylist()
    for node in nodes:
        _node(node)


def _node(node: dict[str, Any]) -> None:
    colour = "orange" if node["cut"] else "green" if node["correct"] else "gray"
    from_what = f" · from {node['made_of']}" if node["made_of"] else ""
    scored = f" · score {node['score']:.2f}" if node["score"] is not None else ""
    head = f":{colour}-badge[{node['operator']}] #{node['number']} · round {node['round']}{from_what}{scored}"
    with st.container(border=True):
        st.markdown(f"{head} · {node['tokens']:,} tokens")
        st.markdown(node["cut"] or marked(node["completion"] or "(empty)"))
        answer = formula(node["chosen_answer"]) if node["chosen_answer"] else "nothing"
        st.caption(f"after this round the search answers {answer}: {'right' if node['chosen_correct'] else 'wrong'}")
