"""Engines of the small study: what they answer is a function of the request's seed alone."""

import os
import time
from collections.abc import Iterator, Sequence

import numpy as np

from storage.artifacts.fingerprint import derived_seed
from tasks.domain.grading.grading import Verdict
from tasks.domain.policies import ServedAdapter
from tasks.domain.scaffolds import Scaffold
from tasks.engines.grading.graders import GradeItem
from tasks.engines.protocols import Completion, Request


class SeededGenerator:
    """Takes 4 ms an answer, or CHAOS_ANSWER_SECONDS."""

    name, version, serving = "seeded", "1", "none"

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        return tuple(scaffold.prompt_text(problem).encode()[:20])

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        for request in requests:
            time.sleep(float(os.environ.get("CHAOS_ANSWER_SECONDS", "0.004")))
            yield answered(request)

    def close(self) -> None: ...


class PlainGraders:
    """Grades by equal text, so that a process of the study costs a second and not the ten of a computer algebra."""

    version = "plain"

    def grade(self, items: Sequence[GradeItem]) -> list[Verdict]:
        answers = [item.completion.removeprefix("<answer>").removesuffix("</answer>") for item in items]
        return [
            Verdict("correct" if answer == item.gold else "wrong", "compared as text", answer, answer)
            for item, answer in zip(items, answers, strict=True)
        ]

    def refuse_broken(self, kind: str) -> None:
        """Nothing of another package grades here."""


def answered(request: Request) -> Completion:
    ids = [derived_seed(request.seed, i) % 500 for i in range(8)]
    logprobs_T = np.array([-0.001 * i for i in ids], np.float32)
    return Completion(request.key, f"<answer>{request.seed % 3}</answer>", ids, logprobs_T, "stop")
