"""What of test-time search a study asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from storage.errors import UserError
from tasks.domain.arms import Arm
from tasks.domain.grpo.learner_config import AtLeastOne
from tasks.domain.ranges import Ranged
from tasks.domain.search.method import CERTAINTY, Method
from tasks.domain.search.registry import method_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(Ranged):
    """Test-time search on the held-out problems, before training and after, sampled as `final` is.

    methods: as `majority` or `majority:width=8` (tasks/domain/search/registry.py); none: not asked. tokens: of prompts
    and completions, after which a problem's search starts no further round. reward: folder of the reward model, or
    sha256:… of one, for methods that are scored by one.
    """

    methods: tuple[str, ...] = ()
    tokens: AtLeastOne = 16_384
    reward: str = ""

    def budgets(self, least: int) -> tuple[int, ...]:
        """The largest, halved as long as one rollout's completion may fit, ascending.

        >>> Search(tokens=1000).budgets(128)
        (250, 500, 1000)
        """
        halved = [self.tokens]
        while halved[-1] // 2 >= least:
            halved.append(halved[-1] // 2)
        return tuple(reversed(halved))

    def refuse_impossible(self, max_tokens: int, arms: Sequence[Arm]) -> None:
        """Errors: UserError for a method that is unknown, twice there or cannot be served, and for a budget that one
        rollout may exceed."""
        methods = {name: method_named(name) for name in self.methods}
        refuse_unservable(methods, arms, reward=bool(self.reward))
        for name in self.methods:
            if self.methods.count(name) > 1:
                raise UserError(f"search.methods: {name} stands there more than once, and would be counted so")
        for one, other in combinations(methods, 2):
            if methods[one] == methods[other]:
                raise UserError(f"search.methods: {one} and {other} are one method, and would be counted twice")
        if self.methods and max_tokens >= self.tokens:
            raise UserError(
                f"search.tokens={self.tokens} is below one rollout, whose completion alone may take {max_tokens} tokens"
                " (final.sampling.max_tokens): give more, or lower that"
            )


def refuse_unservable(
    methods: Mapping[str, Method], arms: Sequence[Arm], *, reward: bool, given_by: str = "search.reward=FOLDER"
) -> None:
    """given_by: how who asks names a reward model. Errors: UserError for a method that an arm's scaffold cannot serve,
    and for one without its reward model."""
    stepless = [arm.name for arm in arms if not arm.scaffold.has_steps]
    for name, method in methods.items():
        if method.in_steps and stepless:
            raise UserError(
                f"method {name} goes step by step, and the scaffold of {' and '.join(stepless)} marks no reasoning that"
                " has steps: leave out one or the other"
            )
        if method.reward not in ("", CERTAINTY) and not reward:
            raise UserError(f"method {name} is scored by a reward model: give its folder ({given_by})")
