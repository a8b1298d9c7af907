"""Solved examples of a prompt beside the problems that it is asked: none may be one of them."""

from __future__ import annotations

from collections.abc import Sequence

from storage.errors import UserError
from tasks.engines.sampling.sampler import RolloutRequest


def refuse_shown(asked: Sequence[RolloutRequest]) -> None:
    """Errors: UserError for a problem that its own prompt solves, before it is sampled. Spaces and capitals aside: what
    only resembles an example is no gold."""
    for scaffold in {id(one.policy.scaffold): one.policy.scaffold for one in asked}.values():
        shown = {_plain(example.problem) for example in scaffold.examples}
        for one in asked if shown else ():
            if one.policy.scaffold is scaffold and _plain(one.problem) in shown:
                raise UserError(
                    f"scaffold {scaffold.name}: its example {one.problem[:60]!r} is a problem that it is asked, so that"
                    " the prompt would hold the gold; show another, or leave the problem out of the pool"
                )


def _plain(text: str) -> str:
    """
    >>> _plain(" What is\\n1 + 1? ")
    'what is 1 + 1?'
    """
    return " ".join(text.split()).casefold()
