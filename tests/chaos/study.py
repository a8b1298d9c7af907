"""A small study to break, with all that a real one has: problems, screening, bands, training with step rollouts and
checkpoints, evaluation of its adapter, vectors, pass@k, a report. Real store, ledger, stages, run record, meter and journal; a
second of seconds-long work, no torch.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from flows.running.accounting import accounted
from flows.running.plan import Planned
from flows.running.sessions import Charging, Listener, silent
from flows.study.profiles import QWEN_1_5B
from flows.study.resolve import PoolInputs, Study
from storage.artifacts.rows import columns
from storage.artifacts.schemas import Bands, PassAtK, Report, Rollouts
from storage.artifacts.store import Store
from storage.roots import write_durably
from tasks.domain.grading.grading import ActiveGrader
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.engines.adapter_files import SERVED
from tasks.engines.hardware import Hardware
from tasks.engines.toolbox import Toolbox
from tasks.measures.bands import classify_bands
from tasks.measures.pass_at_k import estimate_pass_at_k
from tasks.rollouts import ensure_rollouts, entered, requests_for
from tasks.stage import Payload, Ref, Session, making, progress, session, stage, store, workdir
from tests.chaos.engines import PlainGraders, SeededGenerator

RUN, BATCH = "chaos-1", 24
MODEL = BaseModel(name="chaos", sha256="c" * 64)
POLICY, SAMPLING = Policy(arm="panel", model=MODEL), Sampling(max_tokens=64, seed=9)
PROBLEMS = pa.table(
    {
        "problem_id": [f"p{i}" for i in range(12)],
        "source": ["s"] * 12,
        "problem": [f"{i}%3?" for i in range(12)],
        "gold": [str(i % 3) for i in range(12)],
    }
)
GROUP, STEPS, EVALUATED = 6, 6, 4


class ToyTraining(Ref, kind="toy_training", schema=columns("steps big, weights big")):
    """What a training leaves, and its adapter in a file."""


class ToyVectors(Ref, kind="toy_vectors", schema=columns("problem_id str, vector big")):
    """What an encoder makes of rollouts."""


@stage(Rollouts, version=1)
def sample_chaos(*, group_size: int, training: ToyTraining | None = None) -> pa.Table:
    adapter, policy = None, POLICY
    if training is not None:
        adapter = ServedAdapter(str(training), store().files(training))
        policy = replace(POLICY, adapter=str(training), adapter_step=STEPS, step=STEPS)
    requested = requests_for(PROBLEMS, policy, SAMPLING, range(group_size))
    ensure_rollouts(requested, adapter, MODEL, 0)
    return entered(requested).select(Rollouts.schema.names)


@stage(ToyTraining, version=1)
def train_chaos(*, bands: Bands, rollouts: Rollouts, steps: int) -> Payload:
    """Each step samples a group of its own policy, depends on all steps before it, and is checkpointed."""
    state = (0, len(store().read(bands)))
    store().bring_work(making())
    if there := sorted((workdir() / "checkpoints").glob("*.json")):
        step, total = there[-1].read_text().split()
        state = (int(step), int(total))
        progress(state[0], steps, "steps", f"from step {state[0]}", event="noted")
    first = sum(sum(text.encode()) for text in store().read(rollouts)["completion"].to_pylist())
    (served := workdir() / "adapter").mkdir(exist_ok=True)
    (served / SERVED).touch()
    with store().keeping(making()) as keep:
        for step in range(state[0], steps):
            policy = replace(POLICY, adapter=str(making()), adapter_step=step, step=step) if step else POLICY
            requested = requests_for(PROBLEMS.slice(step, 1), policy, replace(SAMPLING, seed=100 + step), range(GROUP))
            ensure_rollouts(requested, ServedAdapter(f"{making()}-{step}", served), MODEL, 0)
            time.sleep(0.03)
            texts = "".join(entered(requested)["completion"].to_pylist())
            state = (step + 1, (state[1] * 31 + first + sum(texts.encode())) % (2**31))
            checkpoint = workdir() / "checkpoints" / f"{state[0]}.json"
            write_durably(checkpoint, f"{state[0]} {state[1]}".encode())
            keep([checkpoint])
            progress(step + 1, steps, "steps")
    files = workdir() / "files"
    files.mkdir(exist_ok=True)
    (files / SERVED).write_bytes(str(state[1]).encode() * 1000)
    return Payload(pa.table({"steps": [state[0]], "weights": [state[1]]}), files)


@stage(ToyVectors, version=1)
def embed_chaos(*, rollouts: Rollouts) -> pa.Table:
    rows = store().read(rollouts)
    vectors = []
    for done, text in enumerate(rows["completion"].to_pylist()):
        time.sleep(0.002)
        vectors.append(sum(text.encode()))
        progress(done + 1, rows.num_rows, "traces")
    return pa.table({"problem_id": rows["problem_id"], "vector": vectors})


@stage(Report, version=1)
def report_chaos(*, passk: PassAtK, training: ToyTraining, vectors: ToyVectors, rollouts: Rollouts) -> Payload:
    correct, weights = sum(store().read(rollouts)["correct"].to_pylist()), store().read(training)["weights"][0].as_py()
    time.sleep(0.05)
    files = workdir() / "files"
    files.mkdir(exist_ok=True)
    (files / "report.html").write_text(f"{correct} correct, weights {weights}, {store().read(passk).num_rows} rows")
    row = {"arm": "panel", "problems": store().read(vectors).num_rows, "gain": weights / 1000}
    return Payload(pa.Table.from_pylist([row], schema=Report.schema), files)


def chaos() -> Report:
    screening = sample_chaos.titled("screen")(group_size=GROUP)
    bands = classify_bands.titled("band")(rollouts=screening)
    training = train_chaos.titled("train")(bands=bands, rollouts=screening, steps=STEPS)
    after = sample_chaos.titled("evaluate")(group_size=EVALUATED, training=training)
    vectors = embed_chaos.titled("embed")(rollouts=after)
    passk = estimate_pass_at_k.titled("pass@k")(rollouts=(after,), ks=(1, 2), draws=50)
    return report_chaos.titled("report")(passk=passk, training=training, vectors=vectors, rollouts=after)


def study_of(root: Path) -> Study:
    hardware = Hardware(batch_size=BATCH, engine="transformers")
    profile = replace(QWEN_1_5B, name="chaos", arms=("panel",), hardware=hardware)
    return Study(profile, {"panel": MODEL}, {"": PoolInputs(())}, "d" * 64, {MODEL.sha256: root}, {})


def tools_of(study: Study) -> Toolbox:
    tools = Toolbox(study.profile.hardware, study.places, ActiveGrader(installed=PlainGraders.version))
    tools._open[("graders",)] = PlainGraders()
    tools._open[tools._sampler_key(MODEL.sha256)] = SeededGenerator()
    return tools


def steps_of(at: Store) -> Sequence[Planned]:
    planning = Session(at, Toolbox(), planning=True)
    with session(planning):
        chaos()
    return [Planned(step, at.fresh(step.ref)) for step in planning.steps]


def run(root: Path, listener: Listener = silent) -> Report:
    at, study = Store(root), study_of(root)
    at.prepare()
    tools = tools_of(study)
    try:
        with (
            accounted(study, at, steps_of(at), Charging(run=RUN), listener, {}) as listeners,
            session(Session(at, tools, listener=listeners.own)),
        ):
            return chaos()
    finally:
        tools.close()
