"""Run the searches of many problems together, so that no problem waits for another one's last round.

With batched sampling, the rounds of all running searches are cut into batches in the order of their requests. Batches
do not depend on the ledger, so a resumed search has the same batches and reuses their rollouts. With streaming, a
problem's next round is sent to the engine as soon as its round is complete, while the engine works on others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from storage.artifacts.kinds import LEDGER
from tasks.domain.policies import Policy, Sampling
from tasks.domain.search.method import Ask, Method
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats
from tasks.rollouts import account_of, as_read_by, ensure_rollouts, entered
from tasks.searching.reading import Asked, hand_over, request_for, too_long
from tasks.searching.tree import Key, Terms, Tree
from tasks.stage import ledger, progress, toolbox

#: Keys of each account that were in the ledger.
Had = dict[tuple[Policy, Sampling], set[Key]]


def search(problems: Sequence[dict[str, Any]], method: Method, terms: Terms) -> tuple[list[Tree], SamplingStats]:
    """Run every problem's search to its end."""
    trees, total = [Tree(problem, method, terms) for problem in problems], SamplingStats()
    size = toolbox().batch_size
    if size is None:
        Stream(trees, terms, total).run()
    else:
        _in_batches(trees, terms, total, size)
    return trees, total


def _in_batches(trees: Sequence[Tree], terms: Terms, total: SamplingStats, size: int) -> None:
    queue = deque(trees)
    while queue:
        batch: list[tuple[Tree, Ask]] = []
        turn: list[Tree] = []
        while queue and len(batch) < size:
            tree = queue.popleft()
            batch += [(tree, ask) for ask in tree.lacking().values()][: size - len(batch)]
            turn.append(tree)
        asked = uncut(batch, terms, {})
        if asked:
            requests = [request for _, _, request in asked]
            total.add(ensure_rollouts(requests, terms.adapter, terms.policy.model, terms.lora_rank))
            hand_over(asked, entered(requests).to_pylist(), terms)
        for tree in turn:
            tree.go_on()
        queue.extend(tree for tree in turn if not tree.ended)
        say(trees)


def uncut(batch: Sequence[tuple[Tree, Ask]], terms: Terms, had: Had) -> list[Asked]:
    """Return the requests that can be sampled or are in the ledger; the tree records the reason for the others."""
    asked: list[Asked] = []
    for tree, ask in batch:
        request = request_for(tree, ask, terms)
        if not is_entered(request, had) and (cut := too_long(request, terms)):
            tree.hand[request.problem_id, request.rollout] = cut
        else:
            asked.append((tree, ask, request))
    return asked


def is_entered(request: RolloutRequest, had: Had) -> bool:
    whose = request.policy, request.sampling
    if whose not in had:
        had[whose] = ledger().keys(account_of(*whose))
    return (request.problem_id, request.rollout) in had[whose]


def say(trees: Sequence[Tree]) -> None:
    ended = sum(tree.ended for tree in trees)
    furthest = max((tree.round for tree in trees if not tree.ended), default=0)
    progress(ended, len(trees), "problems", f"round {furthest}")


class Stream:
    """Sends requests to the engine at once; its results lead to further requests."""

    def __init__(self, trees: Sequence[Tree], terms: Terms, total: SamplingStats) -> None:
        self.trees, self.terms, self.total = trees, terms, total
        self.away: dict[Key, Asked] = {}
        self.had: Had = {}

    def run(self) -> None:
        first = self._next(self.trees)
        if first:
            terms = self.terms
            stats = ensure_rollouts(first, terms.adapter, terms.policy.model, terms.lora_rank, more=self._came)
            self.total.add(stats)
        say(self.trees)

    def _came(self, rows: Sequence[tuple[RolloutRequest, dict[str, Any]]]) -> list[RolloutRequest]:
        """Process stored rows; return the next requests."""
        asked = [self.away.pop((request.problem_id, request.rollout)) for request, _ in rows]
        table = pa.Table.from_pylist([row for _, row in rows], schema=LEDGER)
        read = as_read_by(table, self.terms.policy, [request.gold for request, _ in rows])
        hand_over(asked, read.to_pylist(), self.terms)
        touched = list({id(tree): tree for tree, _, _ in asked}.values())
        for tree in touched:
            tree.go_on()
        say(self.trees)
        return self._next(touched)

    def _next(self, trees: Sequence[Tree]) -> list[RolloutRequest]:
        """Return the requests of these trees that are neither in the ledger nor already sent to the engine."""
        wanted: list[RolloutRequest] = []
        while trees:
            lacking = [
                (tree, ask)
                for tree in trees
                if not tree.ended
                for key, ask in tree.lacking().items()
                if key not in self.away
            ]
            asked = uncut(lacking, self.terms, self.had)
            there = [one for one in asked if is_entered(one[2], self.had)]
            if there:
                hand_over(there, entered([request for _, _, request in there]).to_pylist(), self.terms)
            for one in asked:
                request = one[2]
                if (request.problem_id, request.rollout) not in one[0].hand:
                    self.away[request.problem_id, request.rollout] = one
                    wanted.append(request)
            before = {id(tree): tree.round for tree in trees}
            for tree in trees:
                tree.go_on()
            trees = [tree for tree in trees if not tree.ended and tree.round > before[id(tree)]]
        return wanted
