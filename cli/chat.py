"""`varband chat`: ask a policy in the terminal and watch it answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import options
from storage.errors import printable

if TYPE_CHECKING:
    from tasks.domain.policies import BaseModel, ServedAdapter
    from tasks.domain.scaffolds import Scaffold
    from tasks.engines.protocols import Decoding, Generator
    from tasks.engines.toolbox import Toolbox


@click.command()
@click.argument("problem", required=False)
@click.option("--arm", default="panel", show_default=True, help="Scaffold to ask under.")
@click.option("--adapter", metavar="REF", help="A training artifact; without it the base model is asked.")
@click.option("--step", type=click.IntRange(min=1), help="Step of the adapter.  [default: the last that was kept]")
@click.option("--model", help="Base model: a profile's name for it, or a folder.  [default: the adapter's, else demo]")
@click.option("--gold", help="Reference answer; the grader's verdict is told.")
@options.engine
@click.option("--max-tokens", type=click.IntRange(min=1), default=512, show_default=True)
@click.option("--temperature", type=options.Number(min=0.0, max=2.0), default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@options.root
@options.as_json
def chat(
    problem: str | None,
    arm: str,
    adapter: str | None,
    step: int | None,
    model: str | None,
    gold: str | None,
    engine: str,
    max_tokens: int,
    temperature: float,
    seed: int,
    root: Path,
    as_json: bool,
) -> None:
    """Ask PROBLEM, or, without it, one after another until an empty line. The reasoning streams, then the answer."""
    from flows.running.sessions import engines
    from storage.errors import UserError
    from tasks.domain.arms import ARMS
    from tasks.domain.grading.grading import ActiveGrader
    from tasks.engines.hardware import Hardware
    from tasks.engines.learning.own_forward import positions
    from tasks.engines.protocols import Decoding

    if arm not in ARMS:
        raise UserError(f"unknown arm '{arm}' (known: {', '.join(ARMS)})")
    base, folder, served, rank = policy_of(root, adapter, step, model)
    scaffold = ARMS[arm].scaffold
    room = max(1024, 2 * max_tokens)
    hardware = Hardware(engine=engine, max_model_len=min(room, positions(folder) or room), max_num_seqs=1, batch_size=1)
    decoding = Decoding(max_tokens=max_tokens, temperature=temperature, stop=scaffold.stop)
    with engines(hardware, {base.sha256: folder}, ActiveGrader()) as tools:
        click.echo(f"{arm} · {base.name}" + (f" · {served.name}" if served else " · no adapter"), err=True)
        generator = tools.generator(base.sha256, rank)
        for place, asked in enumerate(_problems(problem)):
            ids = generator.encode(scaffold.prompt(asked), chat=scaffold.chat, enable_thinking=scaffold.enable_thinking)
            said, finish = _streamed(generator, ids, decoding, seed + place, served, quiet=as_json)
            told = _told(tools, scaffold, said, finish, gold)
            _tell(told, said, as_json)


def policy_of(
    root: Path, adapter: str | None, step: int | None, model: str | None
) -> tuple[BaseModel, Path, ServedAdapter | None, int]:
    """(base model, its folder, adapter to serve, LoRA rank). Errors: UserError if one is missing or does not fit."""
    from cli.options import check_there
    from flows.study.models import base_model, model_folder
    from storage.artifacts.fingerprint import restored
    from storage.artifacts.store import Store
    from storage.errors import UserError
    from storage.reading.catalog import find
    from tasks.domain.policies import BaseModel, Policy, ServedAdapter
    from tasks.engines.adapter_files import adapter_files
    from tasks.rollouts import weights_left

    trained_on: BaseModel | None = None
    served, rank = None, 0
    if adapter is not None:
        check_there(root)
        store, ref = Store(root), find(root, adapter)
        if ref.kind != "training":
            raise UserError(f"{ref} is no training: varband ls training lists those that left adapters")
        store.check(ref)
        given = store.manifest(ref).recipe.arguments
        kept = {int(p.name.removeprefix("step-")): p for p in store.files(ref).glob("step-*")}
        if not kept:
            raise weights_left(str(ref), "they are to answer")
        if step is not None and step not in kept:
            raise UserError(f"{ref} keeps no adapter of step {step} (kept: {', '.join(map(str, sorted(kept)))})")
        last = max(kept) if step is None else step
        elsewhere = "start" not in given
        trained_on = restored(BaseModel, given["base"]) if elsewhere else restored(Policy, given["start"]).model
        rank = adapter_files(kept[last]).largest_rank
        served = ServedAdapter(f"{ref} step {last}", kept[last])
    elif step is not None:
        raise UserError("--step says which adapter, so it needs --adapter")
    name = model or (trained_on.name if trained_on else "demo")
    folder = Path(name) if Path(name).is_dir() else model_folder(name)
    base = base_model(folder.name, folder)
    if trained_on and trained_on != base:
        raise UserError(
            f"{adapter} was trained on {trained_on.name} ({trained_on.sha256[:12]}…) and {folder} is another"
            " model: give the folder of the right one with --model"
        )
    return base, folder, served, rank


def _problems(problem: str | None) -> Iterator[str]:
    """The one given, or lines from the terminal or a pipe until an empty one."""
    if problem is not None:
        yield problem
        return
    while True:
        click.echo("problem> ", nl=False, err=True)
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line


def _streamed(
    generator: Generator,
    ids: tuple[int, ...],
    decoding: Decoding,
    seed: int,
    adapter: ServedAdapter | None,
    *,
    quiet: bool,
) -> tuple[str, str]:
    from tasks.engines.sampling.sampler import stream

    said, finish = "", "length"
    for text, ended in stream(generator, ids, decoding, seed, adapter):
        said += text
        finish = ended or finish
        if not quiet:
            click.echo(printable(text, "\n\t"), nl=False)
            sys.stdout.flush()
    if not quiet:
        click.echo("")
    return said, finish


def _told(tools: Toolbox, scaffold: Scaffold, said: str, finish: str, gold: str | None) -> dict[str, Any]:
    parsed = scaffold.parse(said)
    told: dict[str, Any] = {"finish": finish, "tag_valid": parsed.tag_valid, "answer": parsed.region}
    if gold is None:
        return told
    from tasks.engines.grading.graders import GradeItem

    verdict = tools.graders().grade([GradeItem(scaffold, said, gold, finish)])[0]
    return told | {
        "answer": verdict.answer or parsed.region,
        "gold": gold,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
    }


def _tell(told: dict[str, Any], said: str, as_json: bool) -> None:
    if as_json:
        import orjson

        sys.stdout.buffer.write(orjson.dumps({"completion": said, **told}) + b"\n")
        sys.stdout.flush()
        return
    answer = printable((told["answer"] or "none").strip(), "\n\t")
    cut = " (cut off at --max-tokens)" if told["finish"] == "length" else ""
    click.secho(f"answer: {answer}{cut}", bold=True)
    if "verdict" in told:
        click.secho(
            f"{told['verdict']}: {told['reason']} (gold {told['gold']})",
            fg="green" if told["verdict"] == "correct" else "red",
        )
