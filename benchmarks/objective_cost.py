"""What objectives add to a step: seconds of classes, advantages and token weights, beside those of the update.

    python benchmarks/objective_cost.py --root DIR [--model models/demo] [--scaffold panel] [--limit 64] [--encoder DIR]
    python benchmarks/objective_cost.py --model DIR --device cuda --step 4.2 [--encoder DIR]

--root: a store with a training; the rollouts of one of its steps are credited by every objective. Without it 8 x 16
rollouts of 600 random tokens, whose traces are put together of the labelled ones, half of them right. Sampling, which
takes longer than the update, is left out, so shares of the update are upper bounds; --step: seconds that a whole step
took. CPU seconds; on a GPU those of the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from storage.ledger import Ledger
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.classes import trace_classes
from tasks.domain.grpo.credit import credited, seen_by_objective
from tasks.domain.grpo.losses import loss_for
from tasks.domain.grpo.objective_state import ObjectiveState
from tasks.domain.grpo.trained_groups import trained_groups, weighed_tokens
from tasks.domain.grpo.types import LearnerConfig, TrainRollout
from tasks.domain.scaffolds import SCAFFOLDS
from tasks.engines.encoding.encoders import SentenceEncoder
from tasks.engines.encoding.labelled import labelled_problems
from tasks.engines.learning.memory_plan import read_config
from tasks.engines.learning.policy import Execution, Policy
from tasks.engines.learning.update import Clock, Updater
from tasks.turns.trained import as_train_rollout

TIMES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--scaffold", default="panel")
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--encoder", type=Path, help="folder of an encoder, whose classes are timed too")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--step", type=float, help="seconds of a whole step, for shares of it")
    args = parser.parse_args()
    if args.root:
        rows = step_rows(Ledger(args.root), args.limit)
        rollouts = [as_train_rollout(row, SCAFFOLDS[args.scaffold], "pairs") for row in rows]
        written = [row["trace"] for row in rows]
    else:
        rollouts, written = put_together(read_config(args.model)["vocab_size"])
    groups: dict[str, list[TrainRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    size = min(len(group) for group in groups.values())
    config = LearnerConfig(
        steps=1, groups_per_step=8, group_size=size, learning_rate=1e-3, lora_rank=16, lora_alpha=16, minibatches=2
    )
    texts = [[t for t, r in zip(written, rollouts, strict=True) if r.problem_id == problem] for problem in groups]
    gpu = args.device == "cuda"
    clock = time.perf_counter if gpu else time.process_time
    policy = Policy(args.model, config, Execution(device=args.device, merged=gpu))
    updater = Updater(policy, config, 8192)
    update = least(lambda: updater.gradient(groups, Clock()), clock)
    of = Shares(update, args.step, clock)
    letters = sum(len(text or "") for group in texts for text in group)
    print(
        f"{len(rollouts)} rollouts of {len(groups)} problems, {letters:,} characters; the gradient: {1000 * update:.0f} ms"
    )
    of.told("classes by strategy", lambda: [trace_classes(group) for group in texts])
    if args.encoder:
        encoder, traces = SentenceEncoder(args.encoder, name="", max_tokens=256), [t for own in texts for t in own if t]
        of.told("vectors by the encoder", lambda: encoder.encode(traces))
    for name in ADVANTAGES:
        one = replace(config, advantage=name)
        of.told(name, lambda one=one: credited(groups, one, ObjectiveState()))
    for name in ("clip_cov", "kl_cov"):
        one = replace(config, loss=name, advantage="standardised")
        weigh, live = loss_for(one).weigh, trained_groups(groups, one)
        if weigh is not None:
            of.told(f"{name}: token weights", lambda w=weigh, o=one, g=live: weighed_tokens(g, w, o, (0,)))
    counting = replace(config, advantage="ucb_mean")
    seen = [seen_by_objective(group, counting) for group in groups.values()]
    of.told("visits", lambda: ObjectiveState().after(seen, 0.5, counting))


def step_rows(ledger: Ledger, limit: int) -> list[dict[str, Any]]:
    """Rollouts of whole groups of one training step."""
    for account, about in ledger.accounts():
        rows = ledger.read(account) if about.get("adapter") and about.get("step") else None
        if rows is not None and rows.num_rows >= limit and np.isfinite(rows["logprobs"][0].as_py()).all():
            return rows.sort_by([("problem_id", "ascending"), ("rollout", "ascending")]).to_pylist()[:limit]
    raise SystemExit("no step of a training has so many rollouts in this store")


def put_together(vocabulary: int) -> tuple[list[TrainRollout], list[str]]:
    """Rollouts of 8 problems, and their traces: each of four labelled traces of one problem, in an order of its own."""
    draw, rollouts, written = np.random.default_rng(0), [], []
    for p, labelled in enumerate(labelled_problems()[:8]):
        known = labelled.traces
        prompt = draw.integers(0, vocabulary, 260).tolist()
        for g in range(16):
            tokens = draw.integers(0, vocabulary, 600).tolist()
            behaviour, answer = np.full(600, -12, np.float32), "correct" if g % 2 else f"{g % 5}"
            rollouts.append(
                TrainRollout(f"p{p}", "s", g, prompt, tokens, behaviour, g % 2 == 1, True, False, answer, g % 4)
            )
            written.append(" ".join(known[int(i)] for i in draw.integers(0, len(known), 4)))
    return rollouts, written


def least(what: Callable[[], object], clock: Callable[[], float]) -> float:
    """The least seconds of several calls."""
    taken = []
    for _ in range(TIMES):
        began = clock()
        what()
        taken.append(clock() - began)
    return min(taken)


@dataclass(frozen=True, slots=True)
class Shares:
    """update, step: seconds."""

    update: float
    step: float | None
    clock: Callable[[], float]

    def told(self, name: str, what: Callable[[], object]) -> None:
        seconds = least(what, self.clock)
        whole = f" {100 * seconds / self.step:6.2f} % of the step" if self.step else ""
        print(f"  {name:<32} {1000 * seconds:8.2f} ms {100 * seconds / self.update:6.2f} % of the gradient{whole}")


if __name__ == "__main__":
    main()
