"""Search: accuracy against tokens by method, and the tree of one problem's search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboards.pages.parts import chosen, remember, root, rows_of, show_section
from dashboards.text import formula, marked
from storage.reading.figures import on_page
from storage.reading.query_cache import sources

#: Nodes that are drawn at their own size.
FEW = 30
#: Method, arm, step, seed.
Policy = tuple[str, str, int, int]
RIGHT, CUT, OTHER = "#2E8B57", "#C2660C", "#6B7280"


def page() -> None:
    report = chosen()
    if report is None:
        return
    if not sources(root(), report.ref, ("searches",)):
        st.info("This run searched nothing: `varband run PROFILE --set search.methods=majority,likeliest` does.")
        return
    for section in on_page("search"):
        show_section(section)
    _tree()


def _tree() -> None:
    st.subheader("One problem's search", anchor="tree")
    found = rows_of("app_searches")
    if found is None or not found.num_rows:
        return
    rows = found.to_pylist()
    of = [tuple(r[name] for name in ("method", "arm", "step", "seed")) for r in rows]
    names = names_of(list(dict.fromkeys(of)))
    policy = st.selectbox("Search", list(names), format_func=names.__getitem__)
    ids = [r["problem_id"] for r, its in zip(rows, of, strict=True) if its == policy]
    asked = st.query_params.get("problem")
    problem = st.selectbox("Problem", ids, index=ids.index(asked) if asked in ids else 0)
    if policy is None or problem is None:
        return
    remember(problem=problem)
    method, arm, step, seed = policy
    found = rows_of("app_search_tree", {"problem": problem, "method": method, "arm": arm, "step": step, "seed": seed})
    nodes = [] if found is None else found.to_pylist()
    if any(node["made_of"] for node in nodes):
        st.graphviz_chart(tree(nodes), width="content" if len(nodes) < FEW else "stretch")
        st.caption("green: right; orange: cut; an arrow leads to what was made of a completion")
    for node in nodes:
        _node(node)


def names_of(policies: Sequence[Policy]) -> dict[Policy, str]:
    """Each seed's search is one of its own; the seed is said where there are several.

    >>> list(names_of([("majority", "panel", 0, 0), ("majority", "panel", 8, 0), ("majority", "panel", 8, 1)]).values())
    ['majority · panel · step 0', 'majority · panel · step 8 · seed 0', 'majority · panel · step 8 · seed 1']
    """
    several = Counter(policy[:3] for policy in policies)
    return {
        (method, arm, step, seed): f"{method} · {arm} · step {step}"
        + (f" · seed {seed}" if several[method, arm, step] > 1 else "")
        for method, arm, step, seed in policies
    }


def tree(nodes: Sequence[dict[str, Any]]) -> str:
    """In DOT. Labels are numbers and operators: nothing that a model wrote.

    >>> draw = {"number": 1, "operator": "draw", "made_of": None, "cut": None, "correct": True}
    >>> revised = draw | {"number": 2, "operator": "revise", "made_of": "#1", "correct": False}
    >>> print(*tree([draw, revised]).splitlines()[1:], sep="|")
    1 [label="#1 draw" fillcolor="#2E8B57"];|2 [label="#2 revise" fillcolor="#6B7280"];|1 -> 2;|}
    """
    lines = [
        'digraph { bgcolor=transparent; node [shape=box style="filled" fontname=Helvetica fontsize=11 fontcolor=white'
        " color=transparent];"
    ]
    for node in nodes:
        colour = CUT if node["cut"] else RIGHT if node["correct"] else OTHER
        lines.append(f'{node["number"]} [label="#{node["number"]} {node["operator"]}" fillcolor="{colour}"];')
        lines += [f"{name.strip('# ')} -> {node['number']};" for name in (node["made_of"] or "").split(",") if name]
    return "\n".join([*lines, "}"])


def _node(node: dict[str, Any]) -> None:
    colour = "orange" if node["cut"] else "green" if node["correct"] else "gray"
    from_what = f" · from {node['made_of']}" if node["made_of"] else ""
    scored = f" · score {node['score']:.2f}" if node["score"] is not None else ""
    head = f":{colour}-badge[{node['operator']}] #{node['number']} · round {node['round']}{from_what}{scored}"
    with st.container(border=True):
        st.markdown(f"{head} · {node['tokens']:,} tokens")
        st.markdown(node["cut"] or marked(node["completion"] or "(empty)"))
        said = formula(node["chosen_answer"]) if node["chosen_answer"] else "nothing"
        st.caption(f"after this round the search answers {said}: {'right' if node['chosen_correct'] else 'wrong'}")
