"""Tokens a second of searches beside those of plain sampling, with the demo's model, ledger and grading included.

    python -m benchmarks.search_speed [--problems 256] [--engine vllm] [--streaming] [--repeats 3]

Plain sampling takes as many tokens, prompts and completions, of the same problems in one call of its stage. Each is
measured `repeats` times in turn, each time on an empty store; ratios are of medians: by the clock, and by this process's
own CPU seconds, which a busy machine moves less (graders have processes of their own). The engine is warm.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from flows.running.sessions import stages_on
from flows.study.models import SHIPPED, base_model
from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.policies import Policy, Sampling
from tasks.domain.search.registry import method_named
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.sampling import sample_rollouts
from tasks.searches import search_problems
from tasks.splits import split_pool
from tasks.synthetic_pool import make_synthetic_pool

METHODS = (
    *("majority:width=16", "early_stopped:width=16", "revision:revisions=4", "debate:turns=2"),
    *("evolution", "beam:beams=4:expand=4:end=. :by=likelihood"),
)
DRAW = Sampling(max_tokens=128)
PLENTY = 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--streaming", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    args = parser.parse_args()
    folder = SHIPPED["demo"]
    model = base_model("demo", folder)
    hardware = Hardware(
        engine=args.engine, max_model_len=1024, max_num_seqs=128, batch_size=None if args.streaming else 256, threads=1
    )
    policy = Policy(arm="panel", model=model)
    places = {model.sha256: folder}
    with (
        tempfile.TemporaryDirectory() as scratch,
        stages_on(Store(Path(scratch)), hardware=hardware, places=places) as warm,
    ):
        tools = warm.toolbox
        length = measured(Path(scratch) / "warm", tools, policy, args.problems, plain=4).tokens / 4
        print("| method | tokens | of prompts | tok/s | plain tok/s | ratio | ratio by CPU seconds |")
        print("|---|---|---|---|---|---|---|")
        for place, name in enumerate(args.methods.split(",")):
            found: list[Measured] = []
            plain: list[Measured] = []
            for repeat in range(args.repeats):
                root = Path(scratch) / f"{place}-{repeat}"
                found.append(measured(root, tools, policy, args.problems, method=name))
                each = max(1, round(found[-1].tokens / length))
                plain.append(measured(root.with_suffix(".plain"), tools, policy, args.problems, plain=each))
            clock, base = (median(m.tokens / m.seconds for m in of) for of in (found, plain))
            cpu, cpu_base = (median(m.tokens / m.cpu_seconds for m in of) for of in (found, plain))
            last = found[-1]
            ratios = f"{clock / base:.2f} | {cpu / cpu_base:.2f}"
            print(
                f"| {name} | {last.tokens:,} | {last.prompts / last.tokens:.0%} | {clock:,.0f} | {base:,.0f} | {ratios} |",
                flush=True,
            )


@dataclass(frozen=True, slots=True)
class Measured:
    """tokens: of prompts and completions."""

    tokens: int
    prompts: int
    seconds: float
    cpu_seconds: float


def measured(
    root: Path, tools: Toolbox, policy: Policy, problems: int, *, method: str = "", plain: int = 0
) -> Measured:
    """A search, or so many rollouts a problem."""
    store = Store(root)
    store.prepare()
    with stages_on(store) as current:
        current.toolbox = tools
        pool = make_synthetic_pool(per_source=problems // 4, seed=11)
        splits = split_pool(pool=pool, heldout_per_source=0, seed=0)
        about = {"pool": pool, "splits": splits, "policy": policy, "sampling": DRAW}
        began, worked = time.perf_counter(), time.process_time()
        if method:
            search_problems(
                **about,
                name=method,
                method=method_named(method),
                tokens=PLENTY,
                context=1024,
                grader_version=tools.grader.version,
            )
        else:
            sample_rollouts(**about, group_size=plain)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - worked
    completions, prompts = spent(store)
    return Measured(completions + prompts, prompts, seconds, cpu_seconds)


def spent(store: Store) -> tuple[int, int]:
    book = Ledger(store.root)
    tables = [book.rows(account, ["num_tokens", "num_prompt_tokens"]) for account, _ in book.accounts()]

    def total(column: str) -> int:
        return sum(sum(table[column].to_pylist()) for table in tables if table is not None)

    return total("num_tokens"), total("num_prompt_tokens")


if __name__ == "__main__":
    main()
