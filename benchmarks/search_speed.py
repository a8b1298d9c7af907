"""Tokens a second of searches beside those of plain sampling, with the demo's model, ledger and grading included.

    python -m benchmarks.search_speed [--problems 64] [--engine vllm] [--streaming] [--repeats 3]

Plain sampling draws as many completion tokens of the same problems as the search did, in one call of the stage. Each is
measured `repeats` times in turn, each time on an empty store; the ratio is that of medians. A search's later prompts are
longer: prompt tokens stand beside. One process, engine warm.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

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
from tasks.stage import Session, session
from tasks.synthetic_pool import make_synthetic_pool

METHODS = (
    *("majority:width=16", "early_stopped:width=16", "revision:revisions=4", "debate:turns=2"),
    *("evolution", "beam:beams=4:expand=4:end=.:by=likelihood"),
)
DRAW = Sampling(max_tokens=128)
PLENTY = 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=64)
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
        _, tokens, _ = measured(Path(scratch) / "warm", tools, policy, args.problems, plain=4)
        length = tokens / 4 / args.problems
        print("| method | search tok/s | plain tok/s | ratio | completion tokens | prompt tokens |")
        print("|---|---|---|---|---|---|")
        for name in args.methods.split(","):
            found: list[tuple[float, int, int]] = []
            plain: list[float] = []
            for repeat in range(args.repeats):
                root = Path(scratch) / f"{len(found)}-{repeat}-{abs(hash(name))}"
                found.append(measured(root, tools, policy, args.problems, method=name))
                each = max(1, round(found[-1][1] / args.problems / length))
                plain.append(measured(root.with_suffix(".plain"), tools, policy, args.problems, plain=each)[0])
            rates = statistics.median(rate for rate, _, _ in found), statistics.median(plain)
            _, completions, prompts = found[-1]
            told = f"{rates[0]:,.0f} | {rates[1]:,.0f} | {rates[0] / rates[1]:.2f} | {completions:,} | {prompts:,}"
            print(f"| {name} | {told} |", flush=True)


def measured(
    root: Path, tools: Toolbox, policy: Policy, problems: int, *, method: str = "", plain: int = 0
) -> tuple[float, int, int]:
    """(completion tokens a second, completion tokens, prompt tokens) of a search, or of so many rollouts a problem."""
    store = Store(root)
    store.prepare()
    with session(Session(store, tools)):
        pool = make_synthetic_pool(per_source=problems // 4, seed=11)
        splits = split_pool(pool=pool, heldout_per_source=0, seed=0)
        about = {"pool": pool, "splits": splits, "policy": policy, "sampling": DRAW}
        began = time.perf_counter()
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
        seconds = time.perf_counter() - began
    completions, prompts = spent(store)
    return completions / seconds, completions, prompts


def spent(store: Store) -> tuple[int, int]:
    book = Ledger(store.root)
    tables = [book.rows(account, ["num_tokens", "num_prompt_tokens"]) for account, _ in book.accounts()]

    def total(column: str) -> int:
        return sum(sum(table[column].to_pylist()) for table in tables if table is not None)

    return total("num_tokens"), total("num_prompt_tokens")


if __name__ == "__main__":
    main()
