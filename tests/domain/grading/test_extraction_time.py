"""What a model writes is read in time linear in its length, whatever it is."""

from __future__ import annotations

import re
import time

import pytest

from tasks.domain.grading.grading import grade_region, region_of
from tasks.domain.grading.reading import MAX_ANSWERS, answer_texts
from tasks.domain.grading.texts import answer_blocks, boxed
from tasks.domain.scaffolds import SCAFFOLDS

#: Repeated to the length that is wanted: each once made some reader scan the rest of the text again and again.
#: ␣ is a space at the end.
HOSTILE = r"""
\boxed{ ¦ <answer> ¦ </answer> ¦ \boxed{1} ¦ <think> ¦ $1$␣ ¦ ( ¦ \ ¦ not␣ ¦ \frac{ ¦ ^{ ¦ <answer>1</answer> ¦ \text{ ¦ √( ¦ 7
** ¦ <answer>\boxed{ ¦ \sqrt[ ¦ 1 choose␣ ¦ \begin{align} ¦ \phantom{ ¦ {\color{white}} ¦ <!-- ¦ <b hidden␣ ¦ ~~7 ¦ <s>
\sout{ ¦ P(X=1)= ¦ |a ¦ 7 (base␣ ¦ (1,2),␣
"""


def read(unit: str, length: int) -> None:
    """Find the region and the answer in this text: bare, in a tag that is closed or not, in a box."""
    text = unit * (length // len(unit))
    for name, completion in (
        ("thinking", text),
        ("thinking", rf"</think>\boxed{{{text}}}"),
        ("no_panel", f"<answer>{text}</answer>"),
        ("panel", f"<mutipersonaDebate></mutipersonaDebate><answer>{text}"),
    ):
        scaffold = SCAFFOLDS[name]
        grade_region(region_of(scaffold, completion, "stop"), "7", scaffold.answer_form)


def seconds(unit: str, length: int) -> float:
    began = time.process_time()
    read(unit, length)
    return time.process_time() - began


@pytest.mark.parametrize("unit", ["\u200b", *re.split(" ¦ |\n", HOSTILE.strip())])
def test_ten_times_the_text_takes_about_ten_times_as_long(unit: str) -> None:
    """Quadratic reading would take a hundred times as long: `\boxed{` a hundred thousand times took 274 s once."""
    unit = unit.replace("␣", " ")
    short = min(seconds(unit, 10_000) for _ in range(3))
    long = seconds(unit, 100_000)
    assert long < 30 * short + 0.5
    assert long < 5


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"\boxed{7}", ["7"]),
        (r"\boxed{\boxed{7}}", ["7"]),
        (r"\boxed{\boxed{7} \boxed{8}}", [r"\boxed{7} \boxed{8}"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"\boxed{a \\}", [r"a \\"]),
        (r"\boxed 7, \fbox{8}", ["7", "8"]),
        (r"\boxed{7 and more", ["7 and more"]),
        (r"\boxed{\boxed{7", ["7"]),
        ("\\boxed{7\nThat is it.", ["7"]),
        (r"\boxed{\frac{1}{2} \boxed{3}", [r"\frac{1}{2} \boxed{3}"]),
        (r"not \boxed{7} but \boxed{8}", ["not 7", "8"]),
        (r"\boxed{50}\%", [r"50\%"]),
        (r"\boxed{}", [""]),
        (r"} \boxed{7}", ["7"]),
    ],
)
def test_contents_of_boxes(text: str, contents: list[str]) -> None:
    assert boxed(text)[0] == contents


def test_no_box_is_overlooked_however_many_stand_before_it() -> None:
    """Fifty boxes were read and the rest was not: a different answer in the next one did not count."""
    assert answer_texts(r"\boxed{7} " * 50 + r"\boxed{8}", "boxed")[0] == ["7", "8"]
    many = grade_region(" ".join(rf"\boxed{{{n}}}" for n in range(MAX_ANSWERS + 10)), "7", "boxed")
    assert many.verdict == "ambiguous"


def test_blocks_of_the_answer_tag() -> None:
    assert answer_blocks("<answer>7</answer> <answer>8") == ["7", "8"]
    assert answer_blocks("<answer>7</answer> <answer>8", unclosed=False) == ["7"]
    assert answer_blocks("<answer>a <answer>b</answer>") == ["a <answer>b"]
    assert answer_blocks("7</answer>") == []
