"""Problems in the words of a prompt: in whole, however they end, and not as a part of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.errors import UserError
from tasks.domain.scaffolds import PANEL
from tasks.engines.sampling.shown import refuse_shown

SHOWN = [
    ("Find x. (Round to two digits.)", "Find x. (Round to two digits.) Answer: 42"),
    ("Which is prime? (A) 4 (B) 5 (C) 6", "Which is prime? (A) 4 (B) 5 (C) 6 Answer: B"),
    ("What is the value of 5!", "What is the value of 5! Answer: 120"),
    ("Tom has 3. How many?!", "Tom has 3. How many?! Answer: 3"),
    ('He asks "how many are left?"', 'He asks "how many are left?" Answer: 8'),
    ("Find the length of x in [0, 3]", "Find the length of x in [0, 3] Answer: 7"),
    ("三加四等于多少？请计算结果是多少呢？", "例: 三加四等于多少？请计算结果是多少呢？ 7"),
    ("What is 15 + 27?", "Example 1 - What is 15 + 27? Answer: 42"),
    ("What is 15 + 27?", "Q* What is 15 + 27? 42"),
    ("What is 15 + 27", "What is 15 + 27 -> 42"),
    ("What is 15 + 27?", "**What is 15 + 27** 42"),
    ("What is 15 + 27?", "*What is 15 + 27* 42"),
    ("What is 15 + 27?", "What is 15 + 27 is 42"),
    ("What is 15 + 27?", "__What is 15 + 27?__ 42"),
    ("What is 15 + 27?", "Problem_What is 15 + 27?_"),
    ("What is 15 + 27", "What is 15 + 27 (answer 42)"),
    ("A list has three numbers. What is it?", "Example 1 - A list has three numbers. What is it? Answer: 5"),
    ("A list has three numbers. What is it?", "2 * A list has three numbers. What is it?"),
    ("A list has three numbers. What is it?", "1.A list has three numbers. What is it? 3"),
    ("12 men dig a hole. How long?", "Example 3 - 12 men dig a hole. How long? 5"),
    ("10 + 20 + 30", "Example (a) - 10 + 20 + 30 = 60"),
    ("10 + 20 + 30", "Q1 - 10 + 20 + 30 = 60"),
    ("What is seen? [asy] draw(a); [/asy]", "What is seen? [asy] draw(a); [/asy] - 5"),
    ("What is the value of m", r"What is the value of m \boxed{5}"),
    ("What is the value of m", "What is the value of m Final answer: 5"),
    (r"Solve $\frac{x}{2} = \sqrt{16}$", r"Solve $\frac{x}{2} = \sqrt{16}$ - answer: 8"),
]
OTHERS = [
    ("What is 12 + 5?", r"What is 12 + 5 \times 3?"),
    ("What is 12 + 5?", "What is 12 + 5% of 3?"),
    ("What is 12 + 5?", "What is 12 + 5 (3 + 1)?"),
    ("What is 12 + 5?", "What is 12 + 5 > 3?"),
    ("What is 12 + x?", "What is 12 + x_1?"),
    ("10 + 20 + 30 =", "5 * 10 + 20 + 30 ="),
    ("What is 12 + 5?", "What is 12 + 5 − 3?"),
    ("What is 12 + 5?", "What is 12 + 5, then doubled?"),
    ("What is 1 + 12?", "What is 1 + 12!?"),
    ("How many apples does he have?", "How many apples does he have, if he eats 2?"),
    ("Сколько будет пять плюс семь?", "Сколько будет пять плюс семьдесят?"),
    ("Wie viel sind zwei", "Wie viel sind zwei über drei?"),
    ("? ? ? ? ? ? ?", "Think, and answer: <answer>...</answer>"),
    ("12 + 5 + 33 =", "0.12 + 5 + 33 ="),
    ("12 + 5 + 33 =", "100 − 12 + 5 + 33 ="),
]


@pytest.mark.parametrize(("problem", "words"), SHOWN)
def test_it_is_refused_however_it_ends(problem: str, words: str) -> None:
    with pytest.raises(UserError, match="which is a problem that it is asked"):
        refuse_shown(replace(PANEL, template=f"{words}\n{{problem}}"), [problem])


@pytest.mark.parametrize(("problem", "words"), OTHERS)
def test_another_problem_is_not(problem: str, words: str) -> None:
    refuse_shown(replace(PANEL, template=f"{words}\n{{problem}}"), [problem])
