"""Training stages, from problems with a gradient to a LoRA adapter, with one row per step; and the import of adapters.

The learner decides what to sample and how to update. This stage stores each step's rollouts before the learner gets
them. At an evaluated step, held-out problems are sampled in the same engine call.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.schemas import DIAGNOSTICS, EXPOSURE, Bands, Calibrations, Pool, Splits, Training
from storage.errors import UserError
from storage.ledger import LEDGER
from storage.sql import query
from tasks.domain.grpo.learner_config import LearnerConfig, check_kept_whole, check_overlong, check_sampling
from tasks.domain.grpo.steps import PromptProblem, StepPlan, TrainRollout, evaluated_steps
from tasks.domain.policies import AS_CRITIC, BaseModel, MadeElsewhere, Policy, Sampling
from tasks.domain.problems.problems import of_split
from tasks.domain.scaffolds import Scaffold
from tasks.engines.model_files import ADAPTER_FILES, import_before_threads
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats, named
from tasks.engines.tinker_service import REMOTE
from tasks.metering import meter
from tasks.rollouts import ensure_rollouts, entered, refuse_other_rewards, requests_for, weights_left
from tasks.stage import Payload, Ref, making, progress, stage, store, toolbox, workdir
from tasks.turns import Turns

#: Number of a step's rollouts, of different problems, that progress shows, and their columns.
EXAMPLES = 4
EXAMPLE = ["problem_id", "rollout", "completion", "answer", "verdict"]


def trainable(problems: pa.Table, splits: pa.Table, bands: pa.Table | None) -> pa.Table:
    """Return the problems that are not held out, in the pool's order. With bands, take only the variance band."""
    numbered = problems.append_column("place", pa.array(range(problems.num_rows), pa.int64()))
    live = "" if bands is None else "semi join (from bands where is_variance(band)) using (problem_id)"
    tables = {"numbered": numbered, "splits": splits} | ({} if bands is None else {"bands": bands})
    chosen = query(
        f"from numbered semi join (from splits where split = 'train') using (problem_id) {live} order by place",
        **tables,
    )
    return chosen.select(problems.column_names)


def step_sampling(rollouts: Sampling, seed: int, step: int, place: int = 0) -> Sampling:
    """Return the sampling parameters of a training step. Steps have different seeds: a repeated problem gets new
    rollouts.

    place: number of trainings (lessons) before this one. Without `place`, lessons with the same pool and seeds would
    draw the same random numbers. Evaluations keep their seed, because they are paired across steps and arms.

    >>> [step_sampling(Sampling(max_tokens=8), 0, step).seed for step in (1, 2)]
    [1106343393, 646101234]
    """
    return replace(rollouts, seed=derived_seed(rollouts.seed, seed, step, *([place] if place else [])))


def place_of(init: Ref | None) -> int:
    """Return the number of trainings (lessons) before a training that starts from `init`."""
    if init is None:
        return 0
    before = store().manifest(init).recipe.inputs.get("init", [])
    return 1 + place_of(Ref.parse(before[0]) if before else None)


@stage(Training, version=3)
def train_adapter(
    *,
    pool: Pool,
    splits: Splits,
    bands: Bands | None,
    start: Policy,
    learner: LearnerConfig,
    rollouts: Sampling,
    evaluation: Sampling,
    evaluation_group_size: int,
    init: Training | None = None,
    second: Scaffold | None = None,
    calibration: Calibrations | None = None,
    context: int | None = None,
) -> Payload:
    """Train a LoRA adapter. Rows: Training. Files: exposure.parquet, diagnostics.parquet, and for each evaluated step
    `step-NNNN/`, the adapter in PEFT format, with a critic's in its folder `critic`.

    bands: train only on problems in the variance band; None: on all problems that are not held out. init: the training
    whose last adapter this one starts from, with a new optimiser; `start` is that policy. second: the second scaffold,
    for objectives that have one. calibration: the encoder's threshold, for objectives with classes of traces. context:
    most tokens of prompt and completion, for objectives with several turns.

    Raise UserError if no problem is left to train on, or for rollouts that the learner cannot reproduce exactly.
    """
    from tasks.engines.learning.learner import StepMetrics, train
    from tasks.engines.model_checks import execution_on
    from tasks.engines.model_files import read_config

    check_sampling(rollouts)
    check_kept_whole(evaluation, "evaluation.sampling")
    check_overlong(learner, rollouts)
    turns = Turns(learner, start, second, calibration, context)
    problems, held = store().read(pool), store().read(splits)
    chosen = trainable(problems, held, None if bands is None else store().read(bands))
    if chosen.num_rows == 0 and bands is None:
        raise UserError(f"{start.arm}: all problems of the pool are held out, so no problem is left to train on")
    if chosen.num_rows == 0:
        raise UserError(
            f"{start.arm}: no training problem is in the variance band, so no group would have a gradient; use a harder"
            " or easier pool, or another model"
        )
    by_id = {row["problem_id"]: row for row in chosen.to_pylist()}
    heldout = of_split(problems, held, "heldout")
    place = place_of(init)
    sampled, examples = SamplingStats(), dict[int, list[dict[str, object]]]()

    def sample_step(plan: StepPlan) -> list[TrainRollout]:
        at = plan.policy_step
        policy = replace(start, adapter=str(making()), adapter_step=at, step=at, seed=learner.seed) if at else start
        step_problems = pa.Table.from_pylist([by_id[p] for p in plan.problem_ids], schema=chosen.schema)
        draw = step_sampling(rollouts, learner.seed, plan.step, place)
        requested = requests_for(step_problems, policy, draw, range(plan.group_size))
        evaluated = requests_for(heldout, policy, evaluation, range(evaluation_group_size)) if plan.evaluate else []

        def serve(turn: Sequence[RolloutRequest]) -> pa.Table:
            by_critic = any(one.policy.role == AS_CRITIC for one in turn)
            adapter, beside = (plan.critic, []) if by_critic else (plan.adapter, evaluated)
            score = plan.score and partial(plan.score, critic=by_critic)
            stats = ensure_rollouts([*turn, *beside], adapter, start.model, learner.lora_rank, score=score)
            sampled.add(stats)
            rows = entered(turn) if turn else LEDGER.empty_table()
            first = rows.select(EXAMPLE).slice(0, EXAMPLES * plan.group_size)
            examples.setdefault(plan.step, first.to_pylist()[:: plan.group_size])
            return rows

        return turns.sampled(requested, serve, apart=at > 0)

    tools, folder = toolbox(), workdir()
    store().bring_work(making())
    if not (folder / "checkpoints").is_dir():
        refuse_other_rewards(Training.parse(str(making())))

    durations: list[float] = []

    def tell(metrics: StepMetrics) -> None:
        row = metrics.row
        durations.append(sum(metrics.seconds.get(phase, 0.0) for phase in ("sample", "train")))
        left = (learner.steps - row["step"]) * median(durations[-5:])
        speed = row["num_tokens"] / max(durations[-1], 1e-3)
        detail = (
            f"reward {row['reward_mean']:.2f} · correct {row['correct_mean']:.2f} · live groups"
            f" {row['live_groups']:.0%} · entropy {'–' if row['entropy'] is None else format(row['entropy'], '.2f')}"
            f" · {speed:,.0f} tokens/s · {left:,.0f} s left"
        )
        if not row["updates"]:
            detail += " · no update: " + ("a gradient was not finite" if row["skipped_updates"] else "no live group")
        values = {name: float(v) for name, v in row.items() if name != "seed" and isinstance(v, int | float)}
        shown = examples.pop(row["step"], [])
        progress(row["step"], learner.steps, "steps", detail, values=values | {"tokens_per_s": speed}, examples=shown)

    def pay(tokens: int, key: str) -> None:
        if (counter := meter()) is not None:
            counter.pay_for_training(start.arm, tokens, key)

    base = tools.place(start.model.sha256, f"the base model {start.model.name}")
    if learner.staleness:  # make the engine now, because the sampling thread might be the first to need it
        import_before_threads(base)
    with store().keeping(making()) as keep:
        result = train(
            base=base,
            problems=[PromptProblem(r["problem_id"], r["source"], r["subject"]) for r in by_id.values()],
            config=learner,
            execution=execution_on(tools.hardware, read_config(base)),
            workdir=folder,
            sample=sample_step,
            on_step=tell,
            pay=pay,
            on_checkpoint=lambda checkpoint: keep(kept_with(checkpoint, learner)),
            init_adapter=None if init is None else last_adapter(store().files(init)),
            temperature=rollouts.temperature,
        )
    files = folder / "files"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    for adapter in result.kept_adapters:
        shutil.copytree(adapter, files / adapter.name, copy_function=_linked)
    pq.write_table(_rows(result.exposure, EXPOSURE, start.arm), files / "exposure.parquet")
    pq.write_table(_rows(result.diagnostics, DIAGNOSTICS, start.arm), files / "diagnostics.parquet")
    notes = {"sampled_rollouts": str(sampled.rollouts), "sampled_tokens": str(sampled.tokens)}
    notes |= {"scaffold": start.scaffold.digest, "logprob_gap": f"{sampled.gap:.2g}"}
    if sampled.rollouts:
        notes |= named(tools.generator(start.model.sha256, learner.lora_rank))
    return Payload(_rows(result.steps, Training.schema, start.arm), files, notes)


def kept_with(checkpoint: Path, learner: LearnerConfig) -> list[Path]:
    """Return the files that another machine needs to resume from a checkpoint, with adapters of evaluated steps."""
    step, served = int(checkpoint.name.removeprefix("step-")), checkpoint.parents[1] / "served"
    before = [at for at in evaluated_steps(learner.steps, learner.eval_every) if at < step]
    names = ("adapter_*", REMOTE)
    adapters = [path for at in before for name in names for path in (served / f"step-{at:04d}").rglob(name)]
    return [*checkpoint.iterdir(), *adapters]


def _linked(source: str, target: str) -> None:
    """Hard-link a file (an adapter may be 3.4 GB). If the file system has no links, copy the file."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _rows(rows: list[dict[str, object]], schema: pa.Schema, arm: str) -> pa.Table:
    return pa.Table.from_pylist([{"arm": arm, **row} for row in rows], schema=schema)


def last_adapter(files: Path) -> Path:
    """Return the adapter of a training's last stored step. Raise UserError in a copy without weights."""
    kept = [*files.glob("step-*")]
    if not kept:
        raise weights_left(files.parent.name, "a training is to start from them")
    # by number, because names sort differently from step 10,000 on
    return max(kept, key=lambda folder: int(folder.name.removeprefix("step-")))


@stage(Training, version=1)
def import_adapter(*, adapter: MadeElsewhere, base: BaseModel) -> Payload:
    """Store an adapter that was not trained here. The artifact has no rows, because its training steps are unknown.
    Files: `step-0001/`, the adapter in PEFT format."""
    given, files = toolbox().place(adapter.sha256, f"the adapter {adapter.name}"), workdir() / "files"
    shutil.rmtree(files, ignore_errors=True)
    (files / "step-0001").mkdir(parents=True)
    for name in ADAPTER_FILES:
        shutil.copyfile(given / name, files / "step-0001" / name)
    return Payload(Training.schema.empty_table(), files, {"adapter": adapter.name})


#: The step that an imported adapter has.
STEP = 1
