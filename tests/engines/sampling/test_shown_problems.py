"""Problems in the words of a prompt: in whole, however they end, and not as a part of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.errors import UserError
from tasks.domain.scaffolds import PANEL
from tasks.engines.sampling.prompts import refuse_leaked_problems

SHOWN = [
    ("Which is prime? (A) 4 (B) 5 (C) 6", "Which is prime? (A) 4 (B) 5 (C) 6 Answer: B"),
    ("What is the value of 5!", "What is the value of 5! Answer: 120"),
    ("What is 15 + 27", "What is 15 + 27 -> 42"),
    ("A list has three numbers. What is it?", "1.A list has three numbers. What is it? 3"),
]
OTHERS = [
    ("What is 12 + 5?", r"What is 12 + 5 \times 3?"),
    ("10 + 20 + 30 =", "5 * 10 + 20 + 30 ="),
    ("Сколько будет пять плюс семь?", "Сколько будет пять плюс семьдесят?"),
]


@pytest.mark.parametrize(("problem", "words"), SHOWN)
def test_it_is_refused_however_it_ends(problem: str, words: str) -> None:
    with pytest.raises(UserError, match="a problem of the pool"):
        refuse_leaked_problems(replace(PANEL, template=f"{words}\n{{problem}}"), [problem])


@pytest.mark.parametrize(("problem", "words"), OTHERS)
def test_another_problem_is_not(problem: str, words: str) -> None:
    refuse_leaked_problems(replace(PANEL, template=f"{words}\n{{problem}}"), [problem])
