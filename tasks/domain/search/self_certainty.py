"""Best-of-n by self-certainty (Kang, Zhao and Song 2025, arXiv 2502.18581): the mean divergence of each token's
distribution from the uniform one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.domain.search.method import Candidate
from tasks.domain.search.selection import Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCertainty(Parallel):
    def choose(self, seen: Sequence[Candidate]) -> Candidate | None:
        return None

    @property
    def refusal(self) -> str:
        return (
            "it needs the whole distribution of every token, and the engines return the log-prob of the sampled token"
            " alone: take likeliest"
        )
