"""A study's rollouts and adapters in the formats of other tools: JSONL, inspect's `.eval`, and folders for the hub."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import restored
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Training
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading.query_cache import report_arguments, report_inputs
from storage.sql import query
from tasks.designs import settings
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.measures.curves import heldout_rows
from tasks.measures.groups import count_groups
from tasks.training import last_adapter

#: Columns of an exported rollout. `varband import` can read them.
COLUMNS = (
    "problem_id, source, problem, gold, arm, step, seed, rollout, completion, trace, answer, correct, verdict, reason,"
    " finish, num_prompt_tokens, num_tokens, logprob_sum, grader_version"
)
#: Columns of a training that an adapter's card shows.
STEP = ["step", "reward_mean", "correct_mean", "tag_valid_mean", "live_groups", "length_mean", "entropy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The rollouts of one policy. name: its arm, step and seed. rows: COLUMNS, by problem and rollout."""

    ref: Ref
    name: str
    model: str
    rows: pa.Table

    @property
    def accuracy(self) -> dict[str, Any]:
        """Return the row for all sources, as in tasks/measures/curves.py: estimate, low, high."""
        groups = count_groups(self.rows.append_column("adapter", pa.nulls(self.rows.num_rows, pa.string())))
        rows = heldout_rows(groups.append_column("cluster", groups["problem_id"]))
        return next(row for row in rows if row["source"] == "all")


def policies_of(store: Store, ref: Ref) -> list[Policy]:
    """Return the rollouts of an artifact, or of a report's final evaluation. Raise UserError for other kinds."""
    if ref.kind not in ("report", "rollouts"):
        raise UserError(f"{ref} has no rollouts; name a report, a run, a study, or an artifact of kind rollouts")
    inputs = report_inputs(store.manifest(ref).recipe)["final"] if ref.kind == "report" else [str(ref)]
    return [_policy(store, Ref.parse(one)) for one in dict.fromkeys(inputs)]


def _policy(store: Store, ref: Ref) -> Policy:
    made = store.manifest(ref).recipe
    while "pool" not in made.inputs:  # a later grader graded these rollouts again
        made = store.manifest(Ref.parse(made.inputs["rollouts"][0])).recipe
    pool = store.read(Ref.parse(made.inputs["pool"][0]), ["problem_id", "problem", "gold"])
    statement = f"select {COLUMNS} from rollouts join pool using (problem_id) order by problem_id, rollout"
    rows = query(statement, rollouts=store.read(ref), pool=pool)
    first, policy = rows.slice(0, 1).to_pylist()[0], made.arguments["policy"]
    assert isinstance(policy, dict)
    name = f"{first['arm']}-step-{first['step']}-seed-{first['seed']}"
    return Policy(ref, name, policy["model"]["name"], rows)


def study_name(store: Store, ref: Ref) -> str:
    if ref.kind != "report":
        return str(ref)
    given = report_arguments(store.manifest(ref).recipe)
    return given.title or given.profile


def write_jsonl(store: Store, ref: Ref, folder: Path) -> list[Path]:
    """Write one file of rollouts for each policy."""
    written = []
    for policy in policies_of(store, ref):
        path = folder / f"{policy.name}.jsonl"
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in policy.rows.to_pylist()))
        written.append(path)
    return written


def write_inspect(store: Store, ref: Ref, folder: Path) -> list[Path]:
    """Write one `.eval` log for each policy: samples, scores, tokens, and accuracy with its interval."""
    try:
        from inspect_ai import log  # pyright: ignore[reportMissingImports]
        from inspect_ai.model import ChatMessageUser, ModelOutput, ModelUsage  # pyright: ignore[reportMissingImports]
        from inspect_ai.scorer import Score  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("--format inspect needs inspect_ai: install varband[inspect]") from None

    def sample(row: dict[str, Any], model: str) -> Any:
        read, sampled = row["num_prompt_tokens"], row["num_tokens"]
        usage = ModelUsage(input_tokens=read, output_tokens=sampled, total_tokens=read + sampled)
        stop = "max_tokens" if row["finish"] == "length" else "stop"
        output = ModelOutput.from_content(model, row["completion"], stop_reason=stop)
        output.usage = usage
        score = Score(value="C" if row["correct"] else "I", answer=row["answer"], explanation=row["reason"])
        about = {name: row[name] for name in ("source", "trace", "verdict", "grader_version")}
        return log.EvalSample(
            id=row["problem_id"],
            epoch=row["rollout"] + 1,
            input=row["problem"],
            target=row["gold"],
            messages=[ChatMessageUser(content=row["problem"]), output.message],
            output=output,
            scores={"varband": score},
            model_usage={model: usage},
            metadata=about,
        )

    written = []
    for policy in policies_of(store, ref):
        rows, model = policy.rows.to_pylist(), f"varband/{policy.name}"
        samples = [sample(row, model) for row in rows]
        epochs, found = max(row["rollout"] for row in rows) + 1, policy.accuracy
        metrics = {"accuracy": found["estimate"], "accuracy_low": found["low"], "accuracy_high": found["high"]}
        shown = {name: log.EvalMetric(name=name, value=v) for name, v in metrics.items() if v is not None}
        total = sum((one.output.usage for one in samples), ModelUsage())
        created = store.manifest(policy.ref).provenance.created
        path = folder / f"{policy.name}.eval"
        written_log = log.EvalLog(
            status="success",
            eval=log.EvalSpec(
                created=created,
                task=study_name(store, ref),
                dataset=log.EvalDataset(name="heldout", samples=len({row["problem_id"] for row in rows})),
                model=model,
                config=log.EvalConfig(epochs=epochs),
                metadata={"artifact": str(policy.ref), "base_model": policy.model},
            ),
            results=log.EvalResults(
                total_samples=len(rows),
                completed_samples=len(rows),
                scores=[log.EvalScore(name="varband", scorer="varband", metrics=shown)],
            ),
            stats=log.EvalStats(started_at=created, completed_at=created, model_usage={model: total}),
            samples=samples,
        )
        log.write_eval_log(written_log, str(path))
        written.append(path)
    return written


def write_hub(store: Store, ref: Ref, folder: Path) -> list[Path]:
    """Write a folder for a dataset with its card; for a training, a folder with its last adapter and a model card."""
    return _adapter(store, Training.parse(str(ref)), folder) if ref.kind == "training" else _dataset(store, ref, folder)


def _dataset(store: Store, ref: Ref, folder: Path) -> list[Path]:
    from huggingface_hub import DatasetCard, DatasetCardData

    policies, written = policies_of(store, ref), []
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for policy in policies:
        path = folder / "data" / f"{policy.name}.parquet"
        pq.write_table(policy.rows, path, compression="zstd")
        written.append(path)
    name = study_name(store, ref)
    configs = [{"config_name": p.name, "data_files": f"data/{p.name}.parquet"} for p in policies]
    data = DatasetCardData(
        pretty_name=f"Rollouts of {name}", license="other", tags=["varband", "rollouts"], configs=configs
    )
    lines = ["| policy | base model | problems | rollouts | accuracy [95 %] |", "|---|---|---|---|---|"]
    for policy in policies:
        problems = len(policy.rows["problem_id"].unique())
        lines.append(
            f"| {policy.name} | {policy.model} | {problems} | {policy.rows.num_rows} | {interval(policy.accuracy)} |"
        )
    text = "Graded rollouts on held-out problems. The problems have the licences of their sources."
    card = DatasetCard("\n".join(["---", data.to_yaml(), "---", f"# Rollouts of {name}", "", text, "", *lines, ""]))
    card.save(folder / "README.md")
    return [*written, folder / "README.md"]


def _adapter(store: Store, training: Training, folder: Path) -> list[Path]:
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    source, recipe = last_adapter(store.files(training)), dict[str, Any](store.manifest(training).recipe.arguments)
    shutil.copytree(source, folder, dirs_exist_ok=True)
    step, found = int(source.name.removeprefix("step-")), list[EvalResult]()
    for policy in evaluations_of(store, training, step):
        figure = policy.accuracy
        sources = ", ".join(sorted(set(policy.rows["source"].to_pylist())))
        found.append(
            EvalResult(
                task_type="text-generation",
                dataset_type="heldout",
                dataset_name=f"held-out problems of {sources}",
                metric_type="accuracy",
                metric_name=f"accuracy, {policy.rows.num_rows} rollouts, 95 % interval {interval(figure)}",
                metric_value=round(figure["estimate"], 4),
            )
        )
    rows, base = store.read(training), (recipe["start"]["model"] if "start" in recipe else recipe["base"])["name"]
    arm = rows["arm"][0].as_py() if rows.num_rows else "imported"
    data = ModelCardData(
        base_model=base,
        license="other",  # that of the base model, which is not known here
        library_name="peft",
        pipeline_tag="text-generation",
        tags=["lora", "grpo", "reinforcement-learning"],
        model_name=f"{arm}-step-{step}",
        eval_results=found or None,
    )
    text = f"LoRA of {base}, never merged: at this learning rate bfloat16 weights lose nearly all of its update."
    table = [f"| {' | '.join(line)} |" for line in (STEP, ["---"] * len(STEP))]
    for row in rows.to_pylist():
        if row["step"] in (1, step) or row["step"] % 10 == 0:
            table.append(f"| {' | '.join('–' if row[c] is None else f'{row[c]:.4g}' for c in STEP)} |")
    learner = settings(restored(LearnerConfig, recipe["learner"])) if "learner" in recipe else []
    recipe_lines = (f"    {line}" for line in learner)
    lines = ["---", data.to_yaml(), "---", f"# {data.model_name}", "", text, "", *table, "", *recipe_lines, ""]
    ModelCard("\n".join(lines)).save(folder / "README.md")
    return sorted(folder.iterdir())


def evaluations_of(store: Store, training: Training, step: int) -> list[Policy]:
    """Return the held-out evaluations of an adapter, those with the most rollouts first."""
    found = []
    for ref in store.refs("rollouts"):
        given = store.manifest(ref).recipe.arguments
        policy = given.get("policy")
        if given.get("split") == "heldout" and isinstance(policy, dict) and policy["adapter"] == str(training):
            found += [_policy(store, ref)] if policy["adapter_step"] == step else []
    return sorted(found, key=lambda policy: -policy.rows.num_rows)


def interval(row: dict[str, Any]) -> str:
    """
    >>> interval({"estimate": 0.5, "low": 0.25, "high": None}), interval({"estimate": 0.5, "low": 0.4, "high": 0.6})
    ('0.500', '0.500 [0.400, 0.600]')
    """
    low, high = row["low"], row["high"]
    return f"{row['estimate']:.3f}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]")


FORMATS: dict[str, Callable[[Store, Ref, Path], Sequence[Path]]] = {
    "jsonl": write_jsonl,
    "inspect": write_inspect,
    "hf": write_hub,
}


def push(store: Store, ref: Ref, name: str, *, private: bool) -> str:
    """Upload an artifact as OWNER/NAME to the hub: a training as a model, others as a dataset. Return the address. The
    token is huggingface_hub's own (HF_TOKEN or `hf auth login`), and is neither stored nor shown. Raise UserError if
    the upload fails."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

    kind, api = "model" if ref.kind == "training" else "dataset", HfApi()
    with TemporaryDirectory(dir=store.scratch) as folder:
        write_hub(store, ref, Path(folder))
        try:
            where = api.create_repo(name, repo_type=kind, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, repo_type=kind, folder_path=folder, commit_message=f"{ref} of varband")
        except (HTTPError, OSError, ValueError) as error:  # ValueError: an invalid name, or an answer that is not JSON
            why = " ".join(str(error).split())[:300]
            raise UserError(f"{name}: upload to {api.endpoint} failed: {why} (log in with `hf auth login`)") from None
    return str(where)
