"""`varband ask`: get a completion of a policy in the terminal."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cli import options
from flows.running.sessions import engines
from flows.study.models import base_model, folder_of
from flows.study.request import profile_of
from storage.artifacts.fingerprint import restored
from storage.artifacts.store import Store
from storage.errors import UserError, printable
from storage.reading.catalog import find
from tasks.domain.grading.grading import ActiveGrader
from tasks.domain.policies import BaseModel, Policy, ServedAdapter
from tasks.engines.adapter_files import adapter_files
from tasks.engines.grading.graders import GradeItem
from tasks.engines.hardware import Hardware
from tasks.engines.model_checks import positions
from tasks.engines.protocols import Decoding, Request
from tasks.rollouts import weights_left


@click.command()
@click.argument("problem", required=False)
@click.option(
    "--study",
    metavar="PROFILE|STUDY.toml",
    default="demo",
    show_default=True,
    shell_complete=options.studies,
    help="Study that defines the arm and the base model.",
)
@click.option("--arm", default="panel", show_default=True, help="Arm whose scaffold writes the prompt.")
@click.option("--adapter", metavar="REF", help="Training whose adapter is used.  [default: the base model]")
@click.option("--step", type=click.IntRange(min=1), help="Training step of the adapter.  [default: the last]")
@click.option(
    "--model", help="Base model: its name in a profile, or a folder.  [default: that of the adapter, or of the study]"
)
@click.option("--gold", help="Reference answer, against which the completion is graded.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=512, help="Token limit of the completion.")
@click.option("--temperature", type=click.FloatRange(min=0.0, max=2.0), default=1.0, help="Sampling temperature.")
@click.option("--seed", type=int, default=0, help="Sampling seed.")
@options.engine
@options.root
@options.as_json
def ask(problem: str | None, study: str, arm: str, max_tokens: int, root: Path, **how: Any) -> None:
    """Ask a policy to solve PROBLEM. Without PROBLEM, type one problem after another; an empty line ends."""
    profile = profile_of(study)
    scaffold, model = profile.arm(arm).scaffold, how["model"] or (None if how["adapter"] else profile.base_of(arm))
    base, folder, served, rank = policy_of(root, how["adapter"], how["step"], model)
    room, gold = max(1024, 2 * max_tokens), how["gold"]
    length = min(room, positions(folder) or room)
    hardware = Hardware(engine=how["engine"], max_model_len=length, max_num_seqs=1, batch_size=1)
    decoding = Decoding(max_tokens=max_tokens, temperature=how["temperature"], stop=scaffold.stop)
    with engines(hardware, {base.sha256: folder}, ActiveGrader()) as tools:
        click.echo(f"{arm} · {base.name} · {served.name if served else 'no adapter'}", err=True)
        generator = tools.generator(base.sha256, rank)
        for place, words in enumerate(_problems(problem)):
            ids = generator.encode(scaffold, words)
            [found] = generator.generate([Request(0, ids, how["seed"] + place, decoding)], served)
            completion, finish = found.text, found.finish
            if not how["as_json"]:
                click.echo(printable(completion, "\n\t"))
            parsed = scaffold.parse(completion)
            result: dict[str, Any] = {"finish": finish, "tag_valid": parsed.tag_valid, "answer": parsed.region}
            if gold is not None:
                verdict = tools.graders().grade([GradeItem(scaffold, completion, gold, finish)])[0]
                result |= {"answer": verdict.answer or parsed.region, "gold": gold}
                result |= {"verdict": verdict.verdict, "reason": verdict.reason}
            if how["as_json"]:
                options.write_json({"completion": completion, **result})
                continue
            cut = " (cut off at --max-tokens)" if finish == "length" else ""
            click.secho(f"answer: {printable((result['answer'] or 'none').strip(), chr(10) + chr(9))}{cut}", bold=True)
            if gold is not None:
                colour = "green" if result["verdict"] == "correct" else "red"
                click.secho(f"{result['verdict']}: {result['reason']} (gold {gold})", fg=colour)


def policy_of(
    root: Path, adapter: str | None, step: int | None, model: str | None
) -> tuple[BaseModel, Path, ServedAdapter | None, int]:
    """Return base model, its folder, served adapter and its rank. Raise UserError if the model or the adapter is
    missing, or if they do not belong together."""
    if adapter is None:
        if step is not None:
            raise UserError("--step needs --adapter, because it selects one of the adapters of a training")
        folder = folder_of(model or "demo")
        return base_model(folder.name, folder), folder, None, 0
    store, ref = Store(options.check_there(root)), find(root, adapter)
    if ref.kind != "training":
        raise UserError(f"{ref} is not a training (see: varband store ls training)")
    store.check(ref)
    given = store.manifest(ref).recipe.arguments
    kept = {int(path.name.removeprefix("step-")): path for path in store.files(ref).glob("step-*")}
    if not kept:
        raise weights_left(str(ref), "they are to answer")
    last = max(kept) if step is None else step
    if last not in kept:
        raise UserError(
            f"{ref} has no adapter at step {step} (steps with an adapter: {', '.join(map(str, sorted(kept)))})"
        )
    trained_on = restored(Policy, given["start"]).model if "start" in given else restored(BaseModel, given["base"])
    folder = folder_of(model or trained_on.name)
    base = base_model(folder.name, folder)
    if trained_on != base:
        raise UserError(
            f"{adapter} was trained on {trained_on.name} ({trained_on.sha256[:12]}…), but {folder} is another model:"
            f" set --model to the folder of {trained_on.name}"
        )
    served = ServedAdapter(f"{ref} step {last}", kept[last])
    return base, folder, served, adapter_files(kept[last]).largest_rank


def _problems(problem: str | None) -> Iterator[str]:
    """Yield the given problem, or lines from the terminal or a pipe until an empty line."""
    if problem is not None:
        yield problem
        return
    while True:
        click.echo("problem> ", nl=False, err=True)
        if not (line := sys.stdin.readline().strip()):
            return
        yield line
