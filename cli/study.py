"""`varband study`: write, check, show, compare and register studies, each one TOML file."""

from pathlib import Path
from typing import Any

import click

from cli import options
from cli.run import request_of, study_options
from flows.problems import prepare
from flows.running.fit import Machine, arm_prompts
from flows.running.forecast import Forecast, misread_traces
from flows.running.plan import has_sampled, plan
from flows.study.files import differences, value_text, written_out
from flows.study.profiles import PROFILES
from flows.study.request import (
    ENDING,
    Request,
    check_study_name,
    entry_of,
    profile_named,
    profile_of,
    questions_of,
    text_of,
)
from flows.study.settings import listed
from storage.artifacts.store import Store
from storage.errors import UserError, printable
from storage.records.record import register as registered
from storage.records.record import register_path

STARTER = '''\
# A study of your own. A setting that is not here has its value in `{base}`; `varband study show {base}` prints all.
# Check it with `varband study check {file}`, price it with `varband plan {file}`, run it with `varband run {file}`.
base = "{base}"
purpose = "does one expert who thinks alone solve as much as a panel?"
arms = ["panel", "scratchpad"]

# The demo's model was pretrained on four prompts, and this is one of them: it does not understand other wordings, and
# a run with one pauses before training. A model that follows instructions takes any prompt.
[scaffolds.scratchpad]
template = """A conversation between User and Assistant. The user asks a question, and the Assistant solves it. \\
The Assistant first thinks about the reasoning process in the mind and then provides the user with the answer. \\
The reasoning process and answer are enclosed within <think>...</think> and <answer>...</answer> tags, respectively, \\
i.e., <think> reasoning process here </think> <answer>answer here </answer>. User: {{problem}}. Assistant: """
trace_tag = "think"
answer_form = "tag"
stop = ["</answer>"]

[training]
steps = {steps}

# A question: the same study with a setting changed. Run it with `varband run {file}/cooler`.
[questions.cooler]
purpose = "does it hold at a lower temperature?"
rollouts.temperature = 0.7
'''


@click.group()
def study() -> None:
    """Write, check, show, compare and register studies. A study is one file."""


@study.command()
@click.argument("name")
@click.option("--base", default="demo", help="Built-in profile, used for all settings that your file does not set.")
def new(name: str, base: str) -> None:
    """Write NAME.toml, a study for you to edit. It compares a new scaffold with the arm panel."""
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    check_study_name(path.stem)
    steps = profile_named(base).training.steps
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER.format(base=base, file=path, steps=steps))
    except FileExistsError:
        raise UserError(f"{path} exists already: choose another name, or edit that file") from None
    click.echo(f"wrote {path}; next: varband study check {path}")


@study.command()
@click.argument("file", metavar="STUDY.toml")
@options.root
def check(file: str, root: Path) -> None:
    """List all errors of a study's file with their lines, and the inputs that are missing on this machine. Nothing is
    made."""
    own, store, text = profile_of(file), Store(root), text_of(file)
    questions = questions_of(file) if file.endswith(ENDING) else []
    absent, sentences, faults = dict[str, str](), dict[str, None](), dict[str, None]()
    for word in (file, *(f"{file}/{question}" for question in questions)):
        try:
            found = Request(profile=word, text=text).study(store, planning=True)
            absent |= found.absent
            if word == file:
                sentences |= dict.fromkeys(Forecast.of(found, store, found.profile.budget, Machine.here()).head())
            else:
                plan(found, store, prepare)
                sentences |= dict.fromkeys(misread_traces(found))
        except UserError as error:
            faults[str(error)] = None
    if faults:
        raise UserError("; ".join(faults))
    click.echo(f"{own.called}: no mistakes; arms {', '.join(own.arms)}")
    if questions:
        click.echo(f"its questions: {', '.join(questions)}")
    for sentence in sentences:
        click.echo(sentence)
    if absent:
        click.echo("\n  ".join(["inputs that are not on this machine (only a run needs them):", *absent.values()]))


@study.command()
@study_options
@click.option("--problem", metavar="ID", help="source_id or problem_id of the problem.  [default: the pool's first]")
def prompt(root: Path, problem: str | None, **wishes: Any) -> None:
    """Print each arm's prompt for one problem, as the model gets it.

    Special tokens are shown. A line below each prompt names the texts that end its completions and mark their parts.
    """
    store = Store(root)
    found = request_of(**wishes).study(store, planning=True)
    for one in arm_prompts(found, store, plan(found, store), problem):
        click.secho(f"{one.arm}: {one.tokens} tokens", bold=True)
        click.echo(printable(one.text, "\n\t"))
        s, facts = one.scaffold, list[str]()
        facts.append(f"tags {', '.join(s.pairs) or 'none'}; answer form {s.answer_form}")
        facts.append(f"stop {', '.join(map(repr, s.stop)) or 'at the end token only'}")
        if one.default_system:
            facts.append("the system prompt is the chat template's default; `system` replaces it")
        click.secho(f"[{'; '.join(facts)}]\n", dim=True)


@study.command()
@click.argument("which", metavar="PROFILE|STUDY.toml", shell_complete=options.studies)
def show(which: str) -> None:
    """Print every setting of a study, as a TOML file."""
    click.echo(written_out(profile_of(which)), nl=False)


@study.command()
@click.argument("word", required=False, default="")
@options.as_json
def settings(word: str, as_json: bool) -> None:
    """List the settings of a study with their values, default and meaning. With WORD, list only settings whose name
    contains it, such as `training.` or `seed`."""
    found = [one for one in listed() if any(word in name for name in one.names)]
    rows = [{"names": s.names, "values": s.values, "default": s.default, "meaning": s.meaning} for s in found]
    lines = (f"{', '.join(s.names)}  ({s.values}; default: {s.default or 'none'})\n    {s.meaning}" for s in found)
    options.print_result(rows, lines, json=as_json)


@study.command()
@click.argument("one", metavar="PROFILE|STUDY.toml", shell_complete=options.studies)
@click.argument("other", metavar="[PROFILE|STUDY.toml]", required=False, shell_complete=options.studies)
@options.as_json
def diff(one: str, other: str | None, as_json: bool) -> None:
    """Compare the settings of two studies. With one study: compare it with its base."""
    own = profile_of(one)
    before, after = (own, profile_of(other)) if other else (PROFILES.get(own.name, own), own)
    found = differences(before, after)
    rows = [{"setting": path, "before": left, "after": right} for path, (left, right) in found.items()]
    lines = [f"{path}: {value_text(left)} → {value_text(right)}" for path, (left, right) in found.items()]
    options.print_result(rows, lines or [f"{before.called} and {after.called} have equal settings"], json=as_json)


@study.command()
@study_options
@click.option("--by", "names", multiple=True, required=True, help="Person who registers the study. May be repeated.")
@click.option("--rule", help="Decision rule, in words.  [default: the confidence sequence decides]")
@options.as_json
def register(root: Path, names: tuple[str, ...], rule: str | None, as_json: bool, **wishes: Any) -> None:
    """Register a study in a hash-chained file of the root, with its question, decision rule, names and date.

    The report then says whether you registered the study before sampling, and what has changed since.
    """
    store = Store(root)
    study = request_of(**wishes).study(store, planning=True)
    entry = entry_of(study, names, rule or "", sampled=has_sampled(plan(study, store), store))
    store.prepare()
    digest = registered(root, entry)
    when = "after sampling had begun" if entry.sampled else "before sampling"
    lines = [f"{entry.study}: registered {when}, {entry.at}", entry.rule, f"{register_path(root)}: entry {digest[:16]}"]
    options.print_result(entry.model_dump() | {"sha256": digest}, lines, json=as_json)
