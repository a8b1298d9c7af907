"""Data for benchmarks/scale.py: rollouts as long as real ones, in shards as a sampler that streams leaves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from storage.artifacts.kinds import LEDGER, Calibrations, Pool, Splits
from storage.ledger import Ledger
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.scaffolds import PANEL
from tasks.engines.sampling.sampler import FLUSH_ROWS
from tasks.rollouts import account_of
from tasks.stage import stage, store

POLICY = Policy(arm="panel", model=BaseModel(name="none", sha256="0" * 64))
DRAW = Sampling(max_tokens=12_288)
GROUP, SOURCES = 16, 4
#: Texts are made of paragraphs of so many words, one token each, of a vocabulary of this size.
WORDS, PARAGRAPHS, VOCABULARY = 50, 400, 5_000


@stage(Pool, version=1)
def many_problems(*, problems: int) -> pa.Table:
    ids = [f"{i:016x}" for i in range(problems)]
    values: dict[str, list[Any]] = {
        "problem_id": ids,
        "source": [f"source-{i % SOURCES}" for i in range(problems)],
        "source_id": ids,
        "problem": [f"What is {i} + 1?" for i in range(problems)],
        "gold": [str(i + 1) for i in range(problems)],
        "gold_raw": [str(i + 1) for i in range(problems)],
        "answer_type": ["integer"] * problems,
        "cluster": ids,
    }
    nothing = [None] * problems
    return pa.table([pa.array(values.get(f.name, nothing), f.type) for f in Pool.schema], schema=Pool.schema)


@stage(Splits, version=1)
def all_trained(*, pool: Pool) -> pa.Table:
    rows = store().read(pool, ["problem_id", "source"])
    return rows.append_column("split", pa.array(["train"] * rows.num_rows))


@stage(Calibrations, version=1)
def made_up_calibration() -> pa.Table:
    none = dict.fromkeys(("joined", "joined_rightly", "same", "pairs", "problems", "traces"), 0)
    rows = [{"partition": name, "threshold": 0.5} | none for name in ("trace", "strategy")]
    return pa.Table.from_pylist(rows, schema=Calibrations.schema)


def prepared(problems: int) -> tuple[Pool, Splits]:
    pool = many_problems(problems=problems)
    return pool, all_trained(pool=pool)


def fill_ledger(book: Ledger, problems: int, tokens: int) -> None:
    """`GROUP` rollouts of every problem, about `tokens` tokens each."""
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"{syllable}{i}" for i in range(VOCABULARY) for syllable in ("th", "re", "no")])
    paragraphs = rng.integers(0, len(vocabulary), (PARAGRAPHS, WORDS)).astype(np.int32)
    texts = [" ".join(vocabulary[p]) for p in paragraphs]
    levels = np.log(rng.random(256)).astype(np.float32)
    account, said = account_of(POLICY, DRAW), about_it()
    each = FLUSH_ROWS // GROUP
    for start in range(0, problems, each):
        n = min(each, problems - start) * GROUP
        chosen = rng.integers(0, PARAGRAPHS, (n, max(1, tokens // WORDS)))
        places = rng.permutation(n)  # they finish in any order
        problem = start + places // GROUP
        right = rng.random(n) < (problem % 7) / 6
        answers = np.where(right, problem + 1, rng.integers(0, 9, n))
        traces = [f"{problem[i]}: " + " ".join(texts[p] for p in chosen[i]) for i in range(n)]
        ids = paragraphs[chosen].reshape(n, -1)
        values: dict[str, Any] = {
            "problem_id": [f"{p:016x}" for p in problem],
            "source": [f"source-{p % SOURCES}" for p in problem],
            "rollout": places % GROUP,
            "completion": [
                f"<mutipersonaDebate>{t}</mutipersonaDebate> <answer>{a}</answer>"
                for t, a in zip(traces, answers, strict=True)
            ],
            "trace": traces,
            "answer": answers.astype(str),
            "canonical": answers.astype(str),
            "correct": right,
            "verdict": np.where(right, "correct", "wrong"),
            "num_tokens": np.full(n, ids.shape[1]),
            "gold": (problem + 1).astype(str),
            "token_ids": _lists(ids),
            "logprobs": _lists(levels[rng.integers(0, 256, ids.size, np.uint8)].reshape(ids.shape)),
            "prompt_ids": _lists(ids[:, :WORDS]),
            "logprob_sum": rng.random(n) * -tokens,
        }
        book.append(account, pa.table([_column(f, values, n) for f in LEDGER], schema=LEDGER), said)


def about_it() -> dict[str, object]:
    return {"arm": POLICY.arm, "model": POLICY.model.name, "adapter": None, "step": 0, "max_tokens": DRAW.max_tokens}


ALIKE: dict[str, object] = {
    "arm": POLICY.arm,
    "tag_valid": True,
    "grader_version": GRADER_VERSION,
    "finish": "stop",
    "reason": "exact",
    "reading": PANEL.reading,
    "engine": "none 1",
}


def _column(field: pa.Field, values: dict[str, Any], n: int) -> pa.Array:
    if field.name in values:
        found = values[field.name]
        return found if isinstance(found, pa.Array) else pa.array(found).cast(field.type)
    alike = ALIKE.get(field.name, None if field.nullable else 0)
    return pa.array([alike] * n, field.type)


def _lists(values_NT: np.ndarray) -> pa.Array:
    n, t = values_NT.shape
    return pa.ListArray.from_arrays(np.arange(0, (n + 1) * t, t, dtype=np.int32), pa.array(values_NT.reshape(-1)))
