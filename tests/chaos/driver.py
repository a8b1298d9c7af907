"""A small study to break: sampling through the ledger, a training with checkpoints, a figure. Seconds, no torch.

python -m tests.chaos.driver ROOT [--endpoint URL]      exit codes as `varband run`
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.kinds import Rollouts
from storage.artifacts.schemas import columns
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.records.garbage import collecting, note_planned
from storage.records.spending import Journal
from tasks.domain.grading.grading import Verdict
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.engines.grading.graders import GradeItem
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Completion, Request
from tasks.engines.toolbox import Toolbox
from tasks.metering import Meter, metered
from tasks.rollouts import ensure_rollouts, entered, requests_for
from tasks.stage import Ref, Session, session, stage, store, workdir

MODEL = BaseModel(name="chaos", sha256="c" * 64)
POLICY, SAMPLING = Policy(arm="panel", model=MODEL), Sampling(max_tokens=64, seed=9)
PROBLEMS = pa.table(
    {
        "problem_id": [f"p{i}" for i in range(20)],
        "source": ["s"] * 20,
        "problem": [f"{i}+1?" for i in range(20)],
        "gold": [str(i + 1) for i in range(20)],
    }
)
GROUP, STEPS = 12, 12


class SeededGenerator:
    """What it answers is a function of the request's seed alone; takes 2 ms each."""

    name, version, serving = "seeded", "1", "none"

    def encode(self, prompt: str, *, chat: bool, enable_thinking: bool, begun: str = "") -> tuple[int, ...]:
        return tuple(prompt.encode()[:20])

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        for request in requests:
            time.sleep(0.002)
            yield answered(request)

    def close(self) -> None: ...


class PlainGraders:
    """Grades by equal text, so that a process of the driver costs a second and not the ten of a computer algebra."""

    version = "plain"

    def grade(self, items: Sequence[GradeItem]) -> list[Verdict]:
        answers = [item.completion.removeprefix("<answer>").removesuffix("</answer>") for item in items]
        return [
            Verdict("correct" if answer == item.gold else "wrong", "compared as text", answer, answer)
            for item, answer in zip(items, answers, strict=True)
        ]


def answered(request: Request) -> Completion:
    ids = [derived_seed(request.seed, i) % 500 for i in range(16)]
    logprobs_T = np.array([-0.001 * i for i in ids], np.float32)
    return Completion(request.key, f"<answer>{request.seed % 21}</answer>", ids, logprobs_T, "stop")


class ToyTraining(Ref, kind="toy_training", schema=columns("steps big, weights big")):
    """What a training leaves."""


class ToyFigures(Ref, kind="toy_figures", schema=columns("correct big, weights big")):
    """What is found in the end."""


@stage(Rollouts, version=1)
def sample_chaos(*, group_size: int) -> pa.Table:
    requested = requests_for(PROBLEMS, POLICY, SAMPLING, range(group_size))
    ensure_rollouts(requested, None, MODEL, 0)
    return entered(requested).select(Rollouts.schema.names)


@stage(ToyTraining, version=1)
def train_chaos(*, rollouts: Rollouts, steps: int) -> pa.Table:
    """Each step depends on all before it, and is checkpointed as the learner's are."""
    checkpoint, state = workdir() / "state", (0, 0)
    if checkpoint.exists():
        step, total = checkpoint.read_text().split()
        state = (int(step), int(total))
    seeds = [sum(text.encode()) for text in store().read(rollouts)["completion"].to_pylist()]
    for step in range(state[0], steps):
        time.sleep(0.03)
        state = (step + 1, (state[1] * 31 + sum(seeds[step::steps])) % (2**31))
        aside = checkpoint.with_suffix(".new")
        aside.write_text(f"{state[0]} {state[1]}")
        aside.replace(checkpoint)
    return pa.table({"steps": [state[0]], "weights": [state[1]]})


@stage(ToyFigures, version=1)
def count_correct(*, rollouts: Rollouts, training: ToyTraining) -> pa.Table:
    correct = sum(store().read(rollouts)["correct"].to_pylist())
    return pa.table({"correct": [correct], "weights": store().read(training)["weights"]})


def study() -> tuple[Rollouts, ToyTraining, ToyFigures]:
    rollouts = sample_chaos(group_size=GROUP)
    training = train_chaos(rollouts=rollouts, steps=STEPS)
    return rollouts, training, count_correct(rollouts=rollouts, training=training)


def run(root: Path, endpoint: str | None = None) -> tuple[Rollouts, ToyTraining, ToyFigures]:
    at = Store(root)
    at.prepare()
    tools = Toolbox(
        Hardware(batch_size=None if endpoint else 24, engine="openai" if endpoint else "seeded"), {MODEL.sha256: root}
    )
    tools._open[("graders",)] = PlainGraders()
    if endpoint is None:
        tools._open[("generator", "seeded", str(root))] = SeededGenerator()
    else:
        from tests.chaos.remote import remote_generator

        tools._open[("generator", "openai", str(root))] = remote_generator(endpoint)
    planning = Session(at, Toolbox(), planning=True)
    with session(planning):
        study()
    with collecting(root, alone=False):
        note_planned(root, "chaos-1", (step.ref for step in planning.steps))
    meter = Meter(Journal(root, "chaos-1"))
    try:
        with metered(meter), session(Session(at, tools, listener=meter.listening(lambda _: None))):
            return study()
    finally:
        tools.close()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    endpoint = sys.argv[sys.argv.index("--endpoint") + 1] if "--endpoint" in sys.argv else None
    try:
        run(Path(sys.argv[1]), endpoint)
    except (Parked, UserError) as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
