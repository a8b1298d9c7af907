"""The built-in profiles, read from `builtin/*.toml`: every number of every study, in the format of a team's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.study.files import read_study
from flows.study.shape import Benchmark, Profile

FOLDER = Path(__file__).parent / "builtin"


def packaged(name: str, *based_on: Profile) -> Profile:
    """The profile of a packaged file, under its own name."""
    path, bases = FOLDER / f"{name}.toml", {base.name: base for base in based_on}
    study = read_study(path.read_text(encoding="utf-8"), path.name, bases=bases.__getitem__).study
    return replace(study, name=name, purpose=study.about or study.purpose, about="")


DEMO = packaged("demo")
SMALL = packaged("small")
QWEN_1_5B = packaged("qwen-1.5b")
PAPER = packaged("paper", QWEN_1_5B)
#: That any study may name.
BENCHMARKS: tuple[Benchmark, ...] = QWEN_1_5B.benchmarks
GSM8K_LESSON = QWEN_1_5B.lessons[0]
MATH_LESSON = next(lesson for lesson in PAPER.lessons if lesson.name == "math")
