"""Seconds to find the answer in 10³ … 10⁶ characters of hostile text: the worst of the texts.

`python benchmarks/extraction.py` prints one line a length; what grows tenfold with the length is linear.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress

from tasks.domain.grading.grading import grade_region, region_of
from tasks.domain.grading.terms import NeedsSymbolic, exact_same
from tasks.domain.scaffolds import SCAFFOLDS

#: Repeated to the length that is wanted: each once made some reader scan the rest of the text again and again.
HOSTILE = (
    r"\boxed{",
    "<answer>",
    "</answer>",
    r"\boxed{1}",
    r"\boxed{1} and ",
    "<think>",
    "</think>",
    "$1$ ",
    "(",
    "{",
    "[",
    "\\",
    r"\\",
    "a ",
    "1,",
    "1 ",
    "x=",
    "not ",
    r"\frac{",
    "^{",
    "answer is ",
    "<answer>1</answer>",
    r"\text{",
    "√(",
    "=",
    "7",
    " ",
    "~",
    "**",
    r"\(",
    r"<answer>\boxed{",
    r"\boxed{}",
    "}",
    "{}",
    "%",
    ".",
    r"\sqrt[",
    r"\boxed{1}x",
    "because ",
    "1 choose ",
    r"\quad",
    r"\begin{align}",
    "neither ",
    "lorem ipsum ",
    r"\phantom{",
    r"{\color{white}}",
    "<!--",
    "<b hidden ",
    "\u200b",
    "~~7",
    "<s>",
    "<del>7",
    r"\sout{",
    "f(",
    "P(X=1)=",
    "|a",
    "3 hours 20 ",
    "7 (base ",
    r"1 \in \mathbb{Z}",
    "yes, ",
    "7!!",
    "(1,2), ",
    "(1,2) and permutations",
)


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
        with suppress(NeedsSymbolic):
            region = region_of(scaffold, completion, "stop")
            grade_region(region, "7", scaffold.answer_form, same=exact_same)


def main() -> None:
    for length in (1_000, 10_000, 100_000, 1_000_000):
        found = []
        for unit in HOSTILE:
            began = time.process_time()
            read(unit, length)
            found.append((time.process_time() - began, unit))
        worst, unit = max(found)
        told = {"characters": length, "texts": 4 * len(found), "worst_s": round(worst / 4, 4), "worst_text": unit}
        print(json.dumps(told | {"mean_s": round(sum(s for s, _ in found) / len(found) / 4, 5)}))


if __name__ == "__main__":
    main()
