"""Experiment trackers. Each runs in a separate process, so that it cannot stop the run if it fails or hangs.

A tracker's run has a group (a run of the store) and a name (an arm and seed), so that a resumed run continues it. Files
are written to `<root>/tracking`, unless variables of the tracker name another folder (docs/guide/connect.md).
"""

import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from storage.errors import UserError

TrackerName = Literal["trackio", "wandb", "mlflow", "tensorboard"]
#: Name of the table of completions.
COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True)
class Line:
    """Values of one step for one run of a tracker. completions: rows of a table."""

    run: str
    step: int
    values: Mapping[str, float]
    completions: Sequence[Mapping[str, Any]] = ()

    @property
    def id(self) -> str:
        """Return an identity for a step's values, which is the same with and without the costs of the step.

        >>> Line("panel seed 0", 3, {"train/reward": 0.5, "spent/usd": 1.0}).id
        'panel seed 0 step 3: train'
        """
        return f"{self.run} step {self.step}: {max(self.values, default='').rpartition('/')[0]}"

    def table(self, kind: Callable[..., Any]) -> dict[str, Any]:
        """Return the completions as a tracker's table, by its name; empty if there are none."""
        rows = [[*row.values()] for row in self.completions]
        return {COMPLETIONS: kind(columns=[*self.completions[0]], data=rows)} if rows else {}


@dataclass(frozen=True, slots=True)
class TrackerRun:
    """A run of a tracker. project: the study. group: the name that all tracker runs of one run share. name: of this
    run. folder: for the tracker's files. config: the study's settings and limits, by path."""

    project: str
    group: str
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def id(self) -> str:
        return f"{self.group}-{self.name.replace(' ', '-')}"


Log = Callable[[Line], None]


@contextmanager
def _trackio(of: TrackerRun) -> Iterator[Log]:
    import trackio  # pyright: ignore[reportMissingImports]

    # in a context of its own, because `init` finishes the run of the current context
    run = copy_context().run(
        trackio.init,
        of.project,
        name=of.id,
        group=of.group,
        config=dict(of.config),
        resume="allow",
        embed=False,
        auto_log_cpu=False,
        auto_log_gpu=False,
    )

    def log(line: Line) -> None:
        run.log({**line.values, **line.table(trackio.Table)}, step=line.step)

    try:
        yield log
    finally:
        run.finish()


@contextmanager
def _wandb(of: TrackerRun) -> Iterator[Log]:
    import wandb  # pyright: ignore[reportMissingImports]

    with wandb.init(
        project=of.project,
        id=of.id,
        name=of.name,
        group=of.group,
        config=dict(of.config),
        dir=os.environ.get("WANDB_DIR", str(of.folder)),
        resume="allow",
        reinit="create_new",
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
    ) as run:
        # evaluations arrive after later steps, and W&B's own step may not decrease
        run.define_metric("*", step_metric="step")

        def log(line: Line) -> None:
            run.log({**line.values, **line.table(wandb.Table), "step": line.step})

        yield log


@contextmanager
def _mlflow(of: TrackerRun) -> Iterator[Log]:
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]
    from mlflow.entities import Metric, Param  # pyright: ignore[reportMissingImports]

    uri = os.environ.get("MLFLOW_TRACKING_URI")
    client = MlflowClient(uri or f"sqlite:///{of.folder / 'mlflow.db'}")
    if found := client.get_experiment_by_name(of.project):
        experiment = found.experiment_id
    else:
        files = None if uri else (of.folder / "mlflow").resolve().as_uri()
        experiment = client.create_experiment(of.project, artifact_location=files)
    runs = client.search_runs([experiment], f"tags.varband = '{of.id}'")
    run = runs[0] if runs else client.create_run(experiment, run_name=of.id, tags={"varband": of.id, "group": of.group})
    run_id = run.info.run_id
    # a parameter that is set cannot change, and MLflow accepts at most 100 in a batch
    config = {_mlflow_name(name): value for name, value in of.config.items()}
    params = [Param(name, str(value)[:6000]) for name, value in config.items() if name not in run.data.params]
    for first in range(0, len(params), 100):
        client.log_batch(run_id, params=params[first : first + 100])

    def log(line: Line) -> None:
        now = int(1000 * time.time())
        values = {_mlflow_name(name): value for name, value in line.values.items()}
        client.log_batch(run_id, [Metric(name, value, now, line.step) for name, value in values.items()])
        if line.completions:
            columns = line.completions[0].keys()
            table = {name: [row[name] for row in line.completions] for name in columns}
            client.log_table(run_id, {"step": [line.step] * len(line.completions), **table}, f"{COMPLETIONS}.json")

    yield log
    client.set_terminated(run_id)


def _mlflow_name(name: str) -> str:
    """Return a metric's name in the form that MLflow accepts.

    >>> _mlflow_name("objectives.REINFORCE++.loss")
    'objectives.REINFORCE__.loss'
    """
    return re.sub(r"[^\w./: -]", "_", name)


@contextmanager
def _tensorboard(of: TrackerRun) -> Iterator[Log]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(of.folder / "tensorboard" / of.group / of.name.replace(" ", "-")) as writer:
        writer.add_text("config", "\n".join(f"    {name} = {value!r}" for name, value in of.config.items()))

        def log(line: Line) -> None:
            for name, value in line.values.items():
                writer.add_scalar(name, value, line.step)
            for place, row in enumerate(line.completions):
                text = "\n\n".join(f"**{name}**\n\n{value}" for name, value in row.items())
                writer.add_text(f"{COMPLETIONS}/{place}", text, line.step)

        yield log


#: Tracker → (its log, the module that it imports; empty if it needs none).
TRACKERS: dict[str, tuple[Callable[[TrackerRun], AbstractContextManager[Log]], str]] = {
    "trackio": (_trackio, "trackio"),
    "wandb": (_wandb, "wandb"),
    "mlflow": (_mlflow, "mlflow"),
    "tensorboard": (_tensorboard, "tensorboard"),
}


def check_installed(names: Sequence[str]) -> None:
    for name in names:
        if (module := TRACKERS[name][1]) and find_spec(module) is None:
            raise UserError(f"tracking: {name} is not installed; install varband[{name}]")


def receive(lines: Iterable[Line], name: str, of: TrackerRun) -> None:
    """Log every line, and then finish the tracker's runs. This runs in a process of its own. A failure is one sentence
    on standard error; all other output goes to `<folder>/<name>.log`. Lines that an earlier attempt logged are listed
    in `<folder>/sent/<group>-<name>`, and are skipped."""
    of.folder.mkdir(parents=True, exist_ok=True)
    stderr, printed = os.fdopen(os.dup(2), "w"), of.folder / f"{name}.log"
    with printed.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    logs: dict[str, Log] = {}
    (of.folder / "sent").mkdir(exist_ok=True)
    try:
        with ExitStack() as opened:
            notes = opened.enter_context((of.folder / "sent" / f"{of.group}-{name}").open("a+"))
            notes.seek(0)
            sent = {*notes.read().splitlines()}
            for line in lines:
                if line.id in sent:
                    continue
                if line.run not in logs:
                    logs[line.run] = opened.enter_context(TRACKERS[name][0](replace(of, name=line.run)))
                logs[line.run](line)
                sent.add(line.id)
                print(line.id, file=notes, flush=True)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"varband: tracker {name} stopped ({why}); the run continues without it; see {printed}", file=stderr)
        stderr.flush()
        os._exit(1)  # without waiting, because the tracker's threads may hang
