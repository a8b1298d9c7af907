"""`varband run`, `plan`, `submit`, `resume` and `runs`."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cli import options
from cli.tables import print_table
from cli.view import Watch, show_plan, show_result, show_start
from flows.running.accounting import accounted, queue, slurm_jobs, submit_jobs
from flows.running.fit import Machine
from flows.running.forecast import Forecast
from flows.running.plan import is_costly
from flows.running.plan import plan as planned
from flows.running.processes import make
from flows.running.sessions import Charging
from flows.study.files import whole_paths
from flows.study.request import Request, file_of, text_of
from flows.study.settings import SHORT, short_settings
from storage.artifacts.store import Store
from storage.errors import printable
from storage.records.runs import earlier_attempt, read_run, run_id, run_named, runs_table, write_run
from tasks.domain.budget import Budget
from tasks.engines.sampling.endpoint import endpoint_for


def study_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and the options with which a command names and changes a study."""
    folder = click.Path(path_type=Path)
    setting = "Change a setting of the profile, e.g. training.learning_rate=1e-3. May be repeated."
    for option in (
        click.argument("profile", metavar="PROFILE|STUDY.toml", shell_complete=options.studies),
        options.root,
        click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help=setting),
        click.option("--name", help="Name of the study in lists of runs and reports. It does not affect results."),
        click.option("--data", type=folder, envvar="VARBAND_DATA", help="Folder with the problem sets."),
        click.option("--encoder", help="Sentence encoder: a folder, OWNER/NAME@COMMIT on the hub, or sha256:…."),
        *(
            click.option(
                one.option,
                name,
                multiple=one.several,
                is_flag=name == "anyway",
                show_default=False,
                help=one.meaning + " May be repeated." * one.several,
            )
            for name, one in reversed(SHORT.items())
        ),
    ):
        command = option(command)
    return command


def request_of(
    profile: str,
    settings: tuple[str, ...] = (),
    data: Path | None = None,
    encoder: str | None = None,
    name: str | None = None,
    **short: Any,
) -> Request:
    """Return the request of a command line. short: options that abbreviate settings."""
    if found := file_of(profile):
        profile = "/".join(filter(None, (str(found[0].resolve()), found[1])))
    given = [setting.partition("=") for setting in (*settings, *short_settings(short))]
    whole = (f"{field}={_whole(field.strip(), value)}" if equals else field for field, equals, value in given)
    return Request(
        profile=profile,
        settings=tuple(whole),
        data=str(data.resolve()) if data else None,
        encoder=_whole("encoder.name", encoder or "") or None,
        text=text_of(profile),
        name=name or "",
    )


def _whole(field: str, value: str) -> str:
    """Return the value of a setting with absolute paths, so that it works from another folder."""
    return ",".join(whole_paths(value.split(","), Path.cwd(), f".{field}"))


@click.command()
@study_options
@options.budget
@options.shared
@options.as_json
def run(root: Path, budget: str | None, as_json: bool, shared: bool, **wishes: Any) -> None:
    """Run a study: make missing artifacts, reuse existing ones, and write the report."""
    carry_out(request_of(**wishes), root, Budget.parse(budget), as_json=as_json, shared=shared)


def carry_out(request: Request, root: Path, budget: Budget, *, as_json: bool, shared: bool = False) -> None:
    """Run or resume the study of a request."""
    began, store = time.monotonic(), Store(root)
    study = request.study(store)
    steps, hardware, name = planned(study, store), study.profile.hardware, study.profile.called
    store.prepare()
    report, watch = steps[-1].step.ref, Watch(store, apart=as_json)
    run, there = run_id(name, report), all(step.reused for step in steps)
    if hardware.engine == "openai" and is_costly(steps, "embeddings"):
        endpoint_for(hardware.endpoint)  # reports a missing address or a wrong key before a pool is made
    show_start(watch, name, steps)
    # a finished study gets a record only to be listed under another name
    if not there or (request.name and earlier_attempt(root, run) is None):
        charging = Charging.of(study, store, run, budget.over(study.profile.budget))
        with watch, accounted(study, store, steps, charging, watch.on_progress, request.as_json()) as listeners:
            if not there:
                make(study, store, charging, listeners, shared=shared)
    show_result(watch, name, store, report, len(steps), time.monotonic() - began, as_json)


@click.command()
@study_options
@options.budget
@click.option("--slurm", is_flag=True, required=True, expose_value=False, help="Submit to Slurm.")
@click.option("--partition", help="Slurm partition of the jobs that run the study.")
@click.option(
    "--time", "limit_of_time", help="Time limit of a job, in sbatch's format; the run continues in the next job."
)
@click.option(
    "--gpus",
    type=click.IntRange(min=0),
    help="GPUs per job.  [default: as many as an arm needs; 0 if hardware.device is not cuda]",
)
@click.option(
    "--jobs", type=click.IntRange(min=0), default=1, help="Jobs that share the study; 0 for one per arm and seed."
)
@click.option("--sbatch", "more", multiple=True, metavar="OPTION", help="Another option for sbatch. May be repeated.")
@click.option("--dry-run", is_flag=True, help="Print the commands without submitting.")
@options.as_json
def submit(
    root: Path,
    budget: str | None,
    partition: str | None,
    limit_of_time: str | None,
    gpus: int | None,
    jobs: int,
    more: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Submit a study to Slurm. A job pauses before its time limit and is requeued. `varband runs` lists the run."""
    request, store = request_of(**wishes), Store(root)
    # nodes may have no network, and a job that lacks an input would fail after hours in the queue
    study = request.study(store, planning=dry_run)
    steps, p = planned(study, store), study.profile
    charging = Charging.of(study, store, run_id(p.called, steps[-1].step.ref), Budget.parse(budget).over(p.budget))
    count = jobs or len(p.arms) * max(1, len(p.seeds))
    gpus = gpus if gpus is not None else p.hardware.gpus if p.hardware.device == "cuda" else 0
    of_all = [*([f"--time={limit_of_time}"] if limit_of_time else []), *more]
    commands = [*slurm_jobs(charging.run, root, count, of_all, partition=partition, gpus=gpus)]
    if dry_run:
        options.print_result(commands, map(shlex.join, commands), json=as_json)
        return
    store.prepare()
    record = queue(study, store, steps, charging, request.as_json())
    ids = submit_jobs(commands)
    write_run(root, record.model_copy(update={"job": ids[0]}))
    options.print_result(
        {"run": charging.run, "jobs": ids}, [f"{charging.run}: submitted as {', '.join(ids)}"], json=as_json
    )


@click.command()
@study_options
@options.budget
@click.option("--stages", is_flag=True, help="Also list every stage with its rollouts, tokens, GPU-hours and cost.")
@options.as_json
def plan(root: Path, budget: str | None, stages: bool, as_json: bool, **wishes: Any) -> None:
    """Show what a run would make, reuse and cost, and the smallest difference that it can detect. Nothing is made."""
    limits, store = Budget.parse(budget), Store(root)
    study = request_of(**wishes).study(store, planning=True)
    priced = Forecast.of(study, store, limits.over(study.profile.budget), Machine.here())
    if as_json:
        options.write_json(priced.as_json())
    else:
        show_plan(priced, stages=stages)


@click.command()
@click.argument("run", metavar="RUN", shell_complete=options.runs)
@options.root
@options.budget
@options.anyway
@options.shared
@options.as_json
def resume(run: str, root: Path, budget: str | None, anyway: bool, shared: bool, as_json: bool) -> None:
    """Resume a paused, crashed or interrupted run. RUN is its id (see `varband runs`) or its study's name. The budget
    counts all attempts of the run. Limits that --budget does not name stay unchanged. The run keeps the settings that
    it began with. After you change the study's file, `varband run FILE` begins another run."""
    record = run_named(root, run) or read_run(root, run)
    if record.flow_run is not None and os.environ.get("PREFECT_API_URL"):
        from flows.server.deployments import resume_suspended

        if resume_suspended(record.flow_run, record.budget, budget, anyway=anyway):
            resumed = {"run": record.id, "flow_run": record.flow_run}
            options.print_result(resumed, [f"{run}: resumed on the server; a worker continues it"], json=as_json)
            return
    request = Request.from_json(record.request)
    request = replace(request, settings=(*request.settings, *(["gate.anyway=true"] if anyway else [])))
    carry_out(request, root, Budget.parse(budget).over(Budget(**record.budget)), as_json=as_json, shared=shared)


@click.command()
@options.root_there
@options.as_json
def runs(root: Path, as_json: bool) -> None:
    """List the runs of this root with state, stage and spending. On a terminal, lines below the table show the changed
    settings of each run, and why it paused or failed."""
    found = runs_table(root)
    if as_json or not sys.stdout.isatty():
        print_table(found, as_json=as_json)
        return
    texts = ["changed", "why"]
    print_table(found.drop_columns(texts), as_json=False)
    for row in found.to_pylist():
        if lines := [f"{name}: {row[name]}" for name in texts if row[name]]:
            click.echo("\n  ".join([f"\n{printable(row['id'])}", *map(printable, lines)]))
