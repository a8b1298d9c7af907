"""`varband ask`: ask a policy in the terminal, for one completion or by a search whose tree is printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import options
from storage.errors import UserError, printable

if TYPE_CHECKING:
    from tasks.domain.policies import BaseModel, ServedAdapter
    from tasks.domain.scaffolds import Scaffold
    from tasks.engines.hardware import EngineName
    from tasks.engines.protocols import Decoding, Generator
    from tasks.engines.toolbox import Toolbox

#: Tokens of prompt and completion together, of a model that takes more.
LONGEST = 4096
#: The run to which questions are charged; the team's month holds for them too.
CHARGED_TO = "ask"
#: Characters of a completion without an answer that are shown.
SHOWN = 60
#: --max-tokens unless given: of a completion that streams, and of one of a search.
MAX_TOKENS = (512, 128)


@click.command()
@click.argument("problem", required=False)
@click.option(
    "--method", metavar="NAME", help="Search by this method, e.g. majority:width=8. [default: one completion]"
)
@click.option("--arm", default="panel", show_default=True, help="Scaffold to ask under.")
@click.option("--adapter", metavar="REF", help="A training artifact; without it the base model is asked.")
@click.option("--step", type=click.IntRange(min=1), help="Step of the adapter.  [default: the last that was kept]")
@click.option("--model", help="Base model: a profile's name for it, or a folder.  [default: the adapter's, else demo]")
@click.option("--gold", help="Reference answer, for the grader's verdict of one completion.")
@click.option("--tokens", type=click.IntRange(min=1), default=16384, show_default=True, help="A search's budget.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Of one completion.  [default: 512; of a search 128]")
@click.option("--temperature", type=options.Number(min=0.0, max=2.0), default=1.0, show_default=True)
@click.option("--reward", metavar="FOLDER", help="Reward model, for methods that are scored by one.")
@click.option("--seed", type=int, default=0, show_default=True)
@options.engine
@options.root
@options.as_json
def ask(
    problem: str | None,
    method: str | None,
    arm: str,
    adapter: str | None,
    step: int | None,
    model: str | None,
    max_tokens: int | None,
    **how: Any,
) -> None:
    """Ask PROBLEM; without it, one problem after another until an empty line.

    With --method several completions are searched for one answer: what was asked before is reused, no method sees a
    reference answer, and the tree of the search is printed.
    """
    from tasks.domain.arms import ARMS

    if arm not in ARMS:
        raise UserError(f"unknown arm '{arm}' (known: {', '.join(ARMS)})")
    if method is not None and not (problem or "").strip():
        raise UserError("the problem is empty: give its words")
    found = policy_of(how["root"], adapter, step, model)
    if method is None:
        _stream(problem, arm, found, max_tokens or MAX_TOKENS[0], **how)
    else:
        _search(str(problem), method, arm, adapter, found, max_tokens or MAX_TOKENS[1], **how)


def _stream(
    problem: str | None,
    arm: str,
    found: tuple[BaseModel, Path, ServedAdapter | None, int],
    max_tokens: int,
    *,
    gold: str | None,
    temperature: float,
    seed: int,
    engine: EngineName,
    as_json: bool,
    **_: Any,
) -> None:
    from flows.running.sessions import engines
    from tasks.domain.arms import ARMS
    from tasks.domain.grading.grading import ActiveGrader
    from tasks.engines.hardware import Hardware
    from tasks.engines.model_checks import positions
    from tasks.engines.protocols import Decoding

    base, folder, served, rank = found
    scaffold, room = ARMS[arm].scaffold, max(1024, 2 * max_tokens)
    hardware = Hardware(engine=engine, max_model_len=min(room, positions(folder) or room), max_num_seqs=1, batch_size=1)
    decoding = Decoding(max_tokens=max_tokens, temperature=temperature, stop=scaffold.stop)
    with engines(hardware, {base.sha256: folder}, ActiveGrader()) as tools:
        click.echo(f"{arm} · {base.name}" + (f" · {served.name}" if served else " · no adapter"), err=True)
        generator = tools.generator(base.sha256, rank)
        for place, asked in enumerate(_problems(problem)):
            ids = generator.encode(scaffold.prompt(asked), chat=scaffold.chat, enable_thinking=scaffold.enable_thinking)
            text, finish = _streamed(generator, ids, decoding, seed + place, served, quiet=as_json)
            answered = _graded(tools, scaffold, text, finish, gold)
            if as_json:
                options.write_json({"completion": text, **answered})
                continue
            cut = " (cut off at --max-tokens)" if finish == "length" else ""
            click.secho(
                f"answer: {printable((answered['answer'] or 'none').strip(), chr(10) + chr(9))}{cut}", bold=True
            )
            if verdict := answered.get("verdict"):
                colour = "green" if verdict == "correct" else "red"
                click.secho(f"{verdict}: {answered['reason']} (gold {gold})", fg=colour)


def _search(
    problem: str,
    method: str,
    arm: str,
    adapter: str | None,
    found: tuple[BaseModel, Path, ServedAdapter | None, int],
    max_tokens: int,
    *,
    tokens: int,
    temperature: float,
    reward: str | None,
    seed: int,
    engine: EngineName,
    root: Path,
    as_json: bool,
    **_: Any,
) -> None:
    from cli.tables import print_table
    from flows.running.sessions import Charging, stages_on
    from flows.study.models import found_model
    from flows.study.prices import team_prices
    from flows.study.profile import check_methods
    from storage.artifacts.kinds import Training
    from storage.artifacts.store import Store
    from storage.reading.catalog import find
    from tasks.domain.arms import ARMS
    from tasks.domain.budget import Budget
    from tasks.domain.policies import Policy, Sampling
    from tasks.domain.search.method import CERTAINTY
    from tasks.domain.search.registry import method_named
    from tasks.engines.hardware import Hardware
    from tasks.engines.model_checks import positions
    from tasks.grading import active_grader
    from tasks.metering import metered
    from tasks.searches import search_question

    chosen = method_named(method)
    check_methods({method: chosen}, [ARMS[arm]], reward=reward is not None, given_by="--reward FOLDER")
    if tokens <= max_tokens:
        raise UserError(f"--tokens {tokens} is below one rollout, whose completion alone may take {max_tokens}")
    base, folder, served, rank = found
    policy, training = Policy(arm=arm, model=base), None
    if adapter is not None and served is not None:
        training = Training.parse(str(find(root, adapter)))
        last = int(served.folder.name.removeprefix("step-"))
        policy = Policy(arm=arm, model=base, adapter=str(training), adapter_step=last, step=last)
    context = min(LONGEST, positions(folder) or LONGEST)
    hardware = Hardware(engine=engine, max_model_len=context, max_num_seqs=16, batch_size=16)
    store, places = Store(root), {base.sha256: folder}
    scorer = found_model(reward, places, "reward model") if reward and chosen.reward not in ("", CERTAINTY) else None
    store.prepare()
    team = team_prices(root)
    prices = team.of(CHARGED_TO, hardware)
    team.check_limits(prices, hardware, Budget(), root)
    charging = Charging(run=CHARGED_TO, prices=prices, month=team.month)
    with (
        metered(charging.meter(hardware, store)) as charged,
        stages_on(store, charged, hardware=hardware, places=places),
    ):
        made = search_question(
            question=problem,
            policy=policy,
            sampling=Sampling(max_tokens=max_tokens, temperature=temperature, seed=seed),
            name=method,
            method=chosen,
            tokens=tokens,
            context=context,
            grader_version=active_grader(root).version,
            training=training,
            lora_rank=rank,
            reward=scorer,
        )
        rows = store.read(made)
    if as_json:
        print_table(rows, as_json=True)
    else:
        click.echo("\n".join(tree_of(rows.to_pylist(), tokens)))


def policy_of(
    root: Path, adapter: str | None, step: int | None, model: str | None
) -> tuple[BaseModel, Path, ServedAdapter | None, int]:
    """(base model, its folder, adapter to serve, LoRA rank). Errors: UserError if one is missing or does not fit."""
    from cli.options import check_there
    from flows.study.models import base_model, folder_of
    from storage.artifacts.fingerprint import restored
    from storage.artifacts.store import Store
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
            raise UserError(f"{ref} is no training: varband store ls training lists those that left adapters")
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
    folder = Path(name) if Path(name).is_dir() else folder_of(name)
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


def _graded(tools: Toolbox, scaffold: Scaffold, said: str, finish: str, gold: str | None) -> dict[str, Any]:
    parsed = scaffold.parse(said)
    graded: dict[str, Any] = {"finish": finish, "tag_valid": parsed.tag_valid, "answer": parsed.region}
    if gold is None:
        return graded
    from tasks.engines.grading.graders import GradeItem

    verdict = tools.graders().grade([GradeItem(scaffold, said, gold, finish)])[0]
    return graded | {
        "answer": verdict.answer or parsed.region,
        "gold": gold,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
    }


def tree_of(rows: list[dict[str, Any]], budget: int) -> list[str]:
    """Each node under the first of its parents, with the others named; the answer last.

    >>> draw = {"node": "p/0", "parents": "", "operator": "draw", "answer": "7", "num_prompt_tokens": 5}
    >>> made = {**draw, "node": "q/0", "parents": "p/0", "operator": "revise", "answer": "8"}
    >>> last = {"cut": None, "chosen_answer": "8", "num_tokens": 3, "num_scored_tokens": 0}
    >>> print(*tree_of([draw | last, made | last], 15), sep=chr(10))
    #1 draw: 7 (8 tokens)
      #2 revise: 8 (8 tokens)
    answer: 8 (2 completions, 16 tokens; the last round went past the budget of 15)
    """
    number = {row["node"]: place for place, row in enumerate(rows, start=1)}
    depth: dict[str, int] = {}
    children: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        children.setdefault(row["parents"].split(" ")[0], []).append(row)
    lines: list[str] = []
    waiting = list(reversed(children.get("", [])))
    while waiting:
        row = waiting.pop()
        first, *others = row["parents"].split(" ")
        depth[row["node"]] = depth.get(first, -1) + 1
        also = f" with {', '.join(f'#{number[name]}' for name in others)}" if others else ""
        said = row["cut"] or f"{row['answer'] or shortened(row['completion'])} ({cost(row)} tokens)"
        said = printable(" ".join(said.split()))
        lines.append(f"{'  ' * depth[row['node']]}#{number[row['node']]} {row['operator']}{also}: {said}")
        waiting += reversed(children.get(row["node"], []))
    spent = sum(map(cost, rows))
    made = sum(not row["cut"] for row in rows)
    answer = rows[-1]["chosen_answer"] if rows else None
    past = f"; the last round went past the budget of {budget}" if spent > budget else ""
    return [*lines, f"answer: {printable(answer or 'none')} ({made} completions, {spent} tokens{past})"]


def shortened(text: str) -> str:
    """
    >>> shortened("so " * 40)[-9:]
    ' so so …”'
    """
    return f"“{text if len(text) <= SHOWN else text[:SHOWN].rstrip() + ' …'}”"


def cost(row: dict[str, Any]) -> int:
    return row["num_prompt_tokens"] + row["num_tokens"] + row["num_scored_tokens"]
