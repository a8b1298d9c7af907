"""`varband ask`: ask a policy in the terminal, for one completion or by a search with its tree."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import options
from storage.errors import UserError, printable

if TYPE_CHECKING:
    from storage.artifacts.ref import Ref
    from tasks.domain.policies import BaseModel, ServedAdapter

#: The largest context of a question, prompt and completion together.
LONGEST = 4096
#: The run that pays for questions; the team's monthly limit includes them.
CHARGED_TO = "ask"
#: Characters of a completion without an answer that are shown.
TAIL_LENGTH = 60


@click.command()
@click.argument("problem", required=False)
@click.option(
    "--method", metavar="NAME", help="Search by this method, e.g. majority:width=8. [default: one completion]"
)
@click.option("--arm", default="panel", help="Arm whose scaffold makes the prompt.")
@click.option("--adapter", metavar="REF", help="Training artifact whose adapter answers.  [default: the base model]")
@click.option("--step", type=click.IntRange(min=1), help="Step of the adapter.  [default: the last stored one]")
@click.option("--model", help="Base model: its name in a profile, or a folder.  [default: the adapter's, else demo]")
@click.option("--gold", help="Reference answer: grade the completion against it.")
@click.option("--tokens", type=click.IntRange(min=1), default=16384, help="Token budget of a search.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="Limit of one completion.  [default: 512; in a search 128]"
)
@click.option("--temperature", type=options.Number(min=0.0, max=2.0), default=1.0, help="Sampling temperature.")
@click.option("--reward", metavar="FOLDER", help="Folder of a reward model, for methods that need one.")
@click.option("--seed", type=int, default=0, help="Sampling seed.")
@options.engine
@options.root
@options.as_json
def ask(problem: str | None, method: str | None, arm: str, max_tokens: int | None, root: Path, **how: Any) -> None:
    """Ask PROBLEM; without it, ask one problem after another until an empty line. With --method, search for the answer
    with several completions and print the tree of the search. Earlier completions of the same question are reused. No
    method sees the reference answer."""
    from tasks.domain.arms import ARMS

    if arm not in ARMS:
        raise UserError(f"unknown arm '{arm}' (known: {', '.join(ARMS)})")
    if method is not None and not (problem or "").strip():
        raise UserError("the problem's text is empty")
    target = policy_of(root, how["adapter"], how["step"], how["model"])
    if method is None:
        _stream(problem, arm, target, max_tokens or 512, how)
    else:
        _search(str(problem), method, arm, target, max_tokens or 128, root, how)


@dataclass(frozen=True, slots=True)
class Target:
    """A base model and its folder, with the served adapter, its rank and its training."""

    base: BaseModel
    folder: Path
    served: ServedAdapter | None = None
    rank: int = 0
    training: Ref | None = None


def _stream(problem: str | None, arm: str, target: Target, max_tokens: int, how: dict[str, Any]) -> None:
    """Print completions as they are written. how: the other options of `ask`."""
    from flows.running.sessions import engines
    from tasks.domain.arms import ARMS
    from tasks.domain.grading.grading import ActiveGrader
    from tasks.engines.grading.graders import GradeItem
    from tasks.engines.hardware import Hardware
    from tasks.engines.model_checks import positions
    from tasks.engines.protocols import Decoding
    from tasks.engines.sampling.sampler import stream

    scaffold, room, base, gold = ARMS[arm].scaffold, max(1024, 2 * max_tokens), target.base, how["gold"]
    length = min(room, positions(target.folder) or room)
    hardware = Hardware(engine=how["engine"], max_model_len=length, max_num_seqs=1, batch_size=1)
    decoding = Decoding(max_tokens=max_tokens, temperature=how["temperature"], stop=scaffold.stop)
    with engines(hardware, {base.sha256: target.folder}, ActiveGrader()) as tools:
        click.echo(f"{arm} · {base.name} · {target.served.name if target.served else 'no adapter'}", err=True)
        generator = tools.generator(base.sha256, target.rank)
        for place, words in enumerate(_problems(problem)):
            ids = generator.encode(scaffold.prompt(words), chat=scaffold.chat, enable_thinking=scaffold.enable_thinking)
            completion, finish = "", "length"
            for text, ended in stream(generator, ids, decoding, how["seed"] + place, target.served):
                completion, finish = completion + text, ended or finish
                if not how["as_json"]:
                    click.echo(printable(text, "\n\t"), nl=False)
                    sys.stdout.flush()
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
            click.secho(
                f"\nanswer: {printable((result['answer'] or 'none').strip(), chr(10) + chr(9))}{cut}", bold=True
            )
            if gold is not None:
                colour = "green" if result["verdict"] == "correct" else "red"
                click.secho(f"{result['verdict']}: {result['reason']} (gold {gold})", fg=colour)


def _search(
    problem: str, method: str, arm: str, target: Target, max_tokens: int, root: Path, how: dict[str, Any]
) -> None:
    """Search for an answer and print the tree. how: the other options of `ask`."""
    from cli.tables import print_table
    from flows.running.sessions import Charging, stages_on
    from flows.study.models import found_model
    from flows.study.prices import team_prices
    from flows.study.profile import Search
    from storage.artifacts.schemas import Training
    from storage.artifacts.store import Store
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

    chosen, tokens, reward = method_named(method), how["tokens"], how["reward"]
    Search(methods=(method,), tokens=tokens, reward=reward or "").check_served(max_tokens, [ARMS[arm]])
    policy, training = Policy(arm=arm, model=target.base), None
    if target.training is not None and target.served is not None:
        training = Training.parse(str(target.training))
        last = int(target.served.folder.name.removeprefix("step-"))
        policy = Policy(arm=arm, model=target.base, adapter=str(training), adapter_step=last, step=last)
    context = min(LONGEST, positions(target.folder) or LONGEST)
    hardware = Hardware(engine=how["engine"], max_model_len=context, max_num_seqs=16, batch_size=16)
    store, places = Store(root), {target.base.sha256: target.folder}
    needs_model = reward and chosen.reward not in ("", CERTAINTY)
    scorer = found_model(str(reward), places, "reward model") if needs_model else None
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
            sampling=Sampling(max_tokens=max_tokens, temperature=how["temperature"], seed=how["seed"]),
            name=method,
            method=chosen,
            tokens=tokens,
            context=context,
            grader_version=active_grader(root).version,
            training=training,
            lora_rank=target.rank,
            reward=scorer,
        )
        rows = store.read(made)
    if how["as_json"]:
        print_table(rows, as_json=True)
    else:
        click.echo("\n".join(tree_of(rows.to_pylist(), tokens)))


def policy_of(root: Path, adapter: str | None, step: int | None, model: str | None) -> Target:
    """Return the model and adapter to ask. Errors: UserError if one is missing, or they do not fit."""
    from flows.study.models import base_model, folder_of
    from storage.artifacts.fingerprint import restored
    from storage.artifacts.store import Store
    from storage.reading.catalog import find
    from tasks.domain.policies import BaseModel, Policy, ServedAdapter
    from tasks.engines.adapter_files import adapter_files
    from tasks.rollouts import weights_left

    if adapter is None:
        if step is not None:
            raise UserError("--step selects one of a training's adapters, so it needs --adapter")
        folder = folder_of(model or "demo")
        return Target(base_model(folder.name, folder), folder)
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
            f"{adapter} was trained on {trained_on.name} ({trained_on.sha256[:12]}…) and {folder} is another"
            " model: set --model to the folder of the right one"
        )
    served = ServedAdapter(f"{ref} step {last}", kept[last])
    return Target(base, folder, served, adapter_files(kept[last]).largest_rank, ref)


def _problems(problem: str | None) -> Iterator[str]:
    """Yield the given problem, or lines from the terminal or a pipe until an empty one."""
    if problem is not None:
        yield problem
        return
    while True:
        click.echo("problem> ", nl=False, err=True)
        if not (line := sys.stdin.readline().strip()):
            return
        yield line


def tree_of(rows: list[dict[str, Any]], budget: int) -> list[str]:
    """Return the lines of a search's tree: each node below its first parent, naming the others; the answer last.

    >>> draw = {"node": "p/0", "parents": "", "operator": "draw", "answer": "7", "num_prompt_tokens": 5}
    >>> made = {**draw, "node": "q/0", "parents": "p/0", "operator": "revise", "answer": "8"}
    >>> last = {"cut": None, "chosen_answer": "8", "num_tokens": 3, "num_scored_tokens": 0}
    >>> print(*tree_of([draw | last, made | last], 15), sep=chr(10))
    #1 draw: 7 (8 tokens)
      #2 revise: 8 (8 tokens)
    answer: 8 (2 completions, 16 tokens; the last round went past the budget of 15)
    """
    number = {row["node"]: place for place, row in enumerate(rows, start=1)}
    lines: list[str] = []

    def add(parent: str, depth: int) -> None:
        for row in rows:
            first, *others = row["parents"].split(" ")
            if first == parent:
                also = f" with {', '.join(f'#{number[name]}' for name in others)}" if others else ""
                preview = (
                    row["answer"]
                    or f"“{row['completion'][:TAIL_LENGTH].rstrip()}{' …' * (len(row['completion']) > TAIL_LENGTH)}”"
                )
                preview = printable(" ".join((row["cut"] or f"{preview} ({_cost(row)} tokens)").split()))
                lines.append(f"{'  ' * depth}#{number[row['node']]} {row['operator']}{also}: {preview}")
                add(row["node"], depth + 1)

    add("", 0)
    spent, made = sum(map(_cost, rows)), sum(not row["cut"] for row in rows)
    answer = rows[-1]["chosen_answer"] if rows else None
    past = f"; the last round went past the budget of {budget}" if spent > budget else ""
    return [*lines, f"answer: {printable(answer or 'none')} ({made} completions, {spent} tokens{past})"]


def _cost(row: dict[str, Any]) -> int:
    return row["num_prompt_tokens"] + row["num_tokens"] + row["num_scored_tokens"]
