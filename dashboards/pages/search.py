"""Search: accuracy against tokens by method, and the tree of one problem's search."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboards.pages.parts import chosen, remember, root, rows_of, show_section
from dashboards.text import formula, marked
from storage.reading.figures import on_page
from storage.reading.query_cache import sources


def page() -> None:
    report = chosen()
    if report is None:
        return
    if not sources(root(), report.ref, ("searches",)):
        st.info("This run searched nothing: `varband search PROFILE --methods majority,likeliest` does.")
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
    names = {(r["method"], r["arm"], r["step"]): f"{r['method']} · {r['arm']} · step {r['step']}" for r in rows}
    policy = st.selectbox("Search", list(names), format_func=names.__getitem__)
    ids = [r["problem_id"] for r in rows if (r["method"], r["arm"], r["step"]) == policy]
    asked = st.query_params.get("problem")
    problem = st.selectbox("Problem", ids, index=ids.index(asked) if asked in ids else 0)
    if policy is None or problem is None:
        return
    remember(problem=problem)
    method, arm, step = policy
    nodes = rows_of("app_search_tree", {"problem": problem, "method": method, "arm": arm, "step": step})
    for node in [] if nodes is None else nodes.to_pylist():
        _node(node)


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
