"""What earns the tag bonus, arm by arm."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.domain.scaffolds import NO_PANEL, PANEL, SCAFFOLDS, THINK_TAGS, THINKING, Scaffold

D, E = "<mutipersonaDebate>", "</mutipersonaDebate>"
PLAIN = Scaffold(name="plain", template="{problem} Answer in \\boxed{}.", trace_tag=None, answer_form="boxed")
#: What leaves no ink, or none that says anything.
EMPTY = (r"\mathbf{}", r"\textbf{\textit{}}", r"\rule{0pt}{0pt}", r"\left.\right.", "<br/>")
#: (scaffold, completion, valid, valid by the published rule)
CASES = [
    (THINKING, r"<think>a</think> \boxed{7}", True, True),
    (THINKING, r"so it is 7</think> \boxed{7}", False, True),  # a lone closing tag
    (THINKING, r"<think></think> \boxed{7}", False, True),  # empty trace
    (THINKING, "<think>a</think> ", False, True),  # no answer
    (THINKING, r"<think>a</think> \boxed{}", False, True),  # empty answers
    (THINKING, r"<think>a</think> \boxed{\text{}}", False, True),  # nothing is said in these either
    *((THINKING, rf"<think>a</think> \boxed{{{empty}}}", False, True) for empty in EMPTY),
    *((THINKING, rf"<think>{empty}</think> \boxed{{7}}", False, True) for empty in EMPTY),
    *((PANEL, f"{D}a{E} <answer>{empty}</answer>", False, True) for empty in EMPTY),
    (THINKING, r"<think>a</think> \boxed{\left\{\right\}}", True, True),
    (THINKING, r"<think>a</think> \boxed{7", False, True),  # never closed
    (THINKING, r"<think>\boxed{7}</think>", False, True),  # an answer in the trace is none after it
    (THINKING, r"a</think>b<think> \boxed{7}", False, True),  # out of order
    (THINKING, r"<think>a</think><think>b</think> \boxed{7}", False, False),
    (THINKING, r"<think>a \boxed{7}", False, False),
    (PANEL, f"{D}a{E} <answer>7</answer>", True, True),
    (PANEL, f"{D}a <answer>6</answer> b{E} <answer>7</answer>", False, True),  # two pairs
    (PANEL, f"{D}a{E} <answer>7", False, False),
    (PANEL, f"{D}a{E} so <answer>7</answer>", False, False),
    (PANEL, f"<answer>7</answer> {D}a{E}", False, False),
    (NO_PANEL, "a <answer>7</answer>", True, True),
    (NO_PANEL, "<answer>7</answer>", False, False),
    (PLAIN, r"3+4 is 7, so \boxed{7}", True, True),
    (PLAIN, r"\boxed{7}", False, False),
    (PLAIN, "3+4 is 7", False, False),
    (THINK_TAGS, "<think>a</think> <answer>7</answer>", True, True),
    (THINK_TAGS, "a</think> <answer>7</answer>", False, False),
]


@pytest.mark.parametrize(("scaffold", "completion", "valid", "published"), CASES)
def test_the_table(scaffold: Scaffold, completion: str, valid: bool, published: bool) -> None:
    assert scaffold.parse(completion).tag_valid is valid
    assert scaffold.parse(completion, "published").tag_valid is published


@pytest.mark.parametrize("scaffold", SCAFFOLDS.values(), ids=lambda s: s.name)
def test_the_form_that_a_gold_is_put_in_is_valid(scaffold: Scaffold) -> None:
    assert scaffold.parse(scaffold.answer_in_form("7")).tag_valid
    assert f"| {scaffold.name:10} | {', '.join(scaffold.pairs):25} |" in (Scaffold.pairs.__doc__ or "")


def test_without_tags_the_trace_is_what_precedes_the_answer() -> None:
    """Before a box it was nothing, so that no such completion was in form and none was embedded."""
    assert PLAIN.parse(r"3+4 is 7, so \boxed{7}.").trace == "3+4 is 7, so"
    assert PLAIN.parse("It is 7.").trace is None
    assert {s.name for s in (PLAIN, *SCAFFOLDS.values()) if s.versions()} == {"plain"}
    assert PLAIN.reading != replace(PLAIN, answer_form="tag").reading


pieces = st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", D, E, r"\boxed{7}", "7", " "]))


@given(pieces.map("".join), st.sampled_from(list(SCAFFOLDS.values())))
def test_what_is_valid_was_so_by_the_published_rule_and_has_trace_and_region(text: str, scaffold: Scaffold) -> None:
    parsed, published = scaffold.parse(text), scaffold.parse(text, "published")
    assert published.tag_valid or not parsed.tag_valid
    assert (parsed.trace, parsed.region) == (published.trace, published.region)
    if parsed.tag_valid:
        assert parsed.trace and parsed.region and parsed.region.strip()
        assert all(text.count(f"<{tag}>") == text.count(f"</{tag}>") == 1 for tag in scaffold.pairs)


def test_where_the_template_opens_the_tag_a_completion_only_closes_it() -> None:
    opened = Scaffold(
        name="o", template="{problem}", trace_tag="think", answer_form="boxed", chat=True, trace_opened=True
    )
    assert opened.parse(r"a</think> \boxed{7}").tag_valid
    assert not opened.parse(r"<think>a</think> \boxed{7}").tag_valid
    assert not opened.parse(r"</think> \boxed{7}").tag_valid
