"""Whether prompts and their completions fit the context, known before anything is paid for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flows.running.plan import Planned, sampled_here
from flows.study.resolve import Study
from flows.study.sizes import problems_before_checks
from storage.artifacts.kinds import Benchmark, Pool, Splits
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.policies import Policy
from tasks.domain.problems.splits import of_split
from tasks.engines.sampling.prompts import loaded_tokenizer, longest_prompt

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest prompt of an arm: its tokens and problem. needed: tokens with the longest completion. mean: tokens of
    the prompts among which it is the longest."""

    arm: str
    tokens: int
    source_id: str
    needed: int
    mean: float


def longest_prompts(study: Study, store: Store, planned: Sequence[Planned]) -> list[Longest]:
    """Return the longest prompt of each arm that is sampled here, on models whose tokenizer is here. Before a pool is
    built its files stand for it.

    Errors: UserError for an arm whose model has no chat template.
    """
    steps = {p.step.ref: p.step.arguments for p in planned}
    wanted: dict[tuple[Path, Policy, Pool, Splits | Benchmark, str | None], int] = defaultdict(int)
    for policy, sampling, *problems in sampled_here(planned):
        if folder := study.places.get(policy.model.sha256):
            start = Policy(arm=policy.arm, model=policy.model, scaffold=policy.scaffold)
            key = (folder, start, *problems)
            wanted[key] = max(wanted[key], sampling.max_tokens)  # type: ignore[index]
    found: dict[str, Longest] = {}
    load = cache(loaded_tokenizer)
    for (folder, policy, pool, splits, split), max_tokens in wanted.items():
        rows = _rows(study, store, steps, pool, splits, split)
        if not rows or (tokenizer := load(folder)) is None:
            continue
        place, tokens, mean = longest_prompt(tokenizer, policy.scaffold, [row["problem"] for row in rows])
        one = Longest(policy.arm, tokens, rows[place]["source_id"], tokens + max_tokens, mean)
        found[one.arm] = max(one, found.get(one.arm, one), key=lambda one: one.needed)
    return list(found.values())


def _rows(
    study: Study,
    store: Store,
    steps: Mapping[Ref, Mapping[str, Any]],
    pool: Pool,
    splits: Splits | Benchmark,
    split: str | None,
) -> Rows:
    """Return the problems that are wanted, or of a pool or choice that is not made yet all that may be."""
    if store.fresh(pool):
        table = store.read(pool, ["problem_id", "source_id", "problem", "level"])
        if store.fresh(splits):
            return of_split(table, store.read(splits, ["problem_id", "split"]), split).to_pylist()
        rows: Rows = table.to_pylist()
    else:
        rows = problems_before_checks(steps[pool], study.places) or []
    levels = steps[splits]["levels"] if isinstance(splits, Benchmark) else ()
    return [row for row in rows if not levels or row["level"] in levels]


def check_fit(longest: Sequence[Longest], max_model_len: int) -> None:
    """Errors: UserError if a prompt and its completion do not fit."""
    if over := [one for one in longest if one.needed > max_model_len]:
        most = max(over, key=lambda one: one.needed)
        raise UserError(
            f"arm {most.arm}: the prompt of problem {most.source_id} has {most.tokens} tokens and its completion may"
            f" have {most.needed - most.tokens}, which do not fit hardware.max_model_len={max_model_len}; set it to"
            f" {most.needed}, or lower max_tokens"
        )


def prompt_notes(study: Study, store: Store, planned: Sequence[Planned]) -> Iterator[str]:
    """For the plan: yield the longest prompts, and why the run would be refused."""
    limit = study.profile.hardware.max_model_len
    try:
        if longest := longest_prompts(study, store, planned):
            each, most = ", ".join(f"{x.arm} {x.tokens:,} tokens" for x in longest), max(x.needed for x in longest)
            yield f"longest prompts: {each}; with max_tokens at most {most:,} of hardware.max_model_len={limit}"
        check_fit(longest, limit)
    except UserError as refused:
        yield f"the run would refuse it: {refused}"
