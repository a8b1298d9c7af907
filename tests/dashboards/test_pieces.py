"""Rollouts on a page: literal, whatever they hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboards.text import MARKS, MOST, literal, marked, pieces, plain


def test_a_debate_is_taken_apart() -> None:
    text = (
        r"<mutipersonaDebate> Expert 1: Let \(r^2\). Expert 2: \[a \implies b\] </mutipersonaDebate> <answer>5</answer>"
    )
    assert [(p.kind, p.text) for p in pieces(text) if p.text.strip(" .")] == [
        ("tag", "<mutipersonaDebate>"),
        ("speaker", "Expert 1"),
        ("text", " Let "),
        ("math", "r^2"),
        ("speaker", "Expert 2"),
        ("display", r"a \implies b"),
        ("tag", "</mutipersonaDebate>"),
        ("tag", "<answer>"),
        ("text", "5"),
        ("tag", "</answer>"),
    ]


def test_dollars_that_are_money_stay() -> None:
    assert [p.kind for p in pieces("It costs $5 and $6.")] == ["text"]


@given(st.text(max_size=300))
def test_every_mark_of_markdown_is_escaped(text: str) -> None:
    shown = literal(text)
    bare = MARKS.sub("", plain(text))
    assert MARKS.sub("", shown.replace("  \n", "\n")) == bare.replace("\t", " ")
    for place, c in enumerate(shown):
        if MARKS.fullmatch(c) and c != "\\":
            assert shown[place - 1] == "\\"


@given(st.text(st.characters(exclude_categories=["Cf", "Cs"]), max_size=300))
def test_no_letter_is_lost_between_pieces(text: str) -> None:
    kept = "".join(p.text for p in pieces(text))
    assert [c for c in kept if c.isalnum()] == [c for c in text if c.isalnum()]


def test_hostile_rollouts_are_data() -> None:
    assert "<script" not in marked("<script>alert(1)</script>").replace(r"\<script", "")
    assert marked("![x](http://elsewhere/x.png)").startswith(r"\!\[x\]\(http")
    assert r"⟨U\+202E⟩" in marked("a\u202eb") and "\u202e" not in marked("a\u202eb")
    assert len(marked("x" * 100_000)) <= MOST
    assert "\x1b" not in marked("\x1b[31m")


def test_a_box_that_stands_alone_is_a_formula() -> None:
    """An arm may be asked for its answer in \\boxed{…}; dollars around it are nobody's duty."""
    text = r"So 7. </think> \boxed{\frac{1}{2}} or $\boxed{3}$, not \boxed{4"
    assert [(p.kind, p.text) for p in pieces(text) if p.kind in ("math", "display")] == [
        ("math", r"\boxed{\frac{1}{2}}"),
        ("math", r"\boxed{3}"),
    ]
    assert [p.kind for p in pieces(r"\boxed{$5} \boxed{" + "{" * 20_000)] == ["text"]
