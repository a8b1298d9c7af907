"""What of test-time search a study asks for."""

from __future__ import annotations

from dataclasses import dataclass

from storage.errors import UserError
from tasks.domain.grpo.types import AtLeastOne
from tasks.domain.ranges import Ranged
from tasks.domain.search.registry import method_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(Ranged):
    """Test-time search on the held-out problems, before training and after, sampled as `final` is.

    methods: as `majority` or `majority:width=8` (tasks/domain/search/registry.py); none: not asked. tokens: of prompts
    and completions, after which a problem's search starts no further round.
    """

    methods: tuple[str, ...] = ()
    tokens: AtLeastOne = 16_384

    def budgets(self, least: int) -> tuple[int, ...]:
        """The largest, halved as long as one rollout's completion may fit, ascending.

        >>> Search(tokens=1000).budgets(128)
        (250, 500, 1000)
        """
        halved = [self.tokens]
        while halved[-1] // 2 >= least:
            halved.append(halved[-1] // 2)
        return tuple(reversed(halved))

    def refuse_impossible(self, max_tokens: int) -> None:
        """Errors: UserError for a method that is unknown, twice there or cannot be served, and for a budget that one
        rollout may exceed."""
        for name in self.methods:
            method_named(name)
            if self.methods.count(name) > 1:
                raise UserError(f"search.methods: {name} stands there more than once, and would be counted so")
        if self.methods and max_tokens >= self.tokens:
            raise UserError(
                f"search.tokens={self.tokens} is below one rollout, whose completion alone may take {max_tokens} tokens"
                " (final.sampling.max_tokens): give more, or lower that"
            )
