"""`varband ask`: one question under a method of search, and the tree that it made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli import options
from storage.errors import printable

#: Tokens of prompt and completion together, of a model that takes more.
LONGEST = 4096
#: Whose journal the questions are charged to; the team's month holds for them too.
CHARGED_TO = "ask"
#: Characters of what gave no answer.
SHOWN = 60


@click.command()
@click.argument("problem")
@click.option("--method", required=True, metavar="NAME", help="With parameters where wanted: majority:width=8")
@click.option("--arm", default="panel", show_default=True, help="Scaffold to ask under.")
@click.option("--adapter", metavar="REF", help="A training artifact; without it the base model is asked.")
@click.option("--step", type=click.IntRange(min=1), help="Step of the adapter.  [default: the last that was kept]")
@click.option("--model", help="Base model: a profile's name for it, or a folder.  [default: the adapter's, else demo]")
@click.option(
    "--budget", default="tokens=16384", show_default=True, metavar="tokens=N", help="After which no round starts."
)
@click.option("--max-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="Of one completion.")
@click.option("--context", type=click.IntRange(min=1), help="With the prompt.  [default: the model's, at most 4096]")
@click.option("--reward", metavar="FOLDER", help="Reward model, for methods that are scored by one.")
@click.option("--seed", type=int, default=0, show_default=True)
@options.engine
@options.root
@options.as_json
def ask(
    problem: str,
    method: str,
    arm: str,
    adapter: str | None,
    step: int | None,
    model: str | None,
    budget: str,
    max_tokens: int,
    context: int | None,
    reward: str | None,
    seed: int,
    engine: str,
    root: Path,
    as_json: bool,
) -> None:
    """Search for an answer to PROBLEM. What was asked before is reused; nobody tells it whether the answer is right."""
    from cli.chat import policy_of
    from cli.search import tokens_of
    from cli.tables import print_table
    from flows.running.sessions import Charging, stages_on
    from flows.study.models import found_reward_model
    from flows.study.profile import check_methods
    from storage.artifacts.kinds import Training
    from storage.artifacts.store import Store
    from storage.errors import UserError
    from storage.reading.catalog import find
    from tasks.domain.arms import ARMS
    from tasks.domain.budget import Budget
    from tasks.domain.policies import Policy, Sampling
    from tasks.domain.search.method import CERTAINTY
    from tasks.domain.search.registry import method_named
    from tasks.engines.hardware import Hardware
    from tasks.engines.learning.own_forward import check_positions, positions
    from tasks.grading import active_grader
    from tasks.metering import metered
    from tasks.searches import search_question

    if arm not in ARMS:
        raise UserError(f"unknown arm '{arm}' (known: {', '.join(ARMS)})")
    if not problem.strip():
        raise UserError("the problem is empty: give its words")
    chosen, tokens = method_named(method), tokens_of(budget)
    check_methods({method: chosen}, [ARMS[arm]], reward=reward is not None, given_by="--reward FOLDER")
    if tokens <= max_tokens:
        raise UserError(f"--budget {budget} is below one rollout, whose completion alone may take {max_tokens} tokens")
    base, folder, served, rank = policy_of(root, adapter, step, model)
    policy, training = Policy(arm=arm, model=base), None
    if adapter is not None and served is not None:
        training = Training.parse(str(find(root, adapter)))
        last = int(served.folder.name.removeprefix("step-"))
        policy = Policy(arm=arm, model=base, adapter=str(training), adapter_step=last, step=last)
    if context is None:
        context = min(LONGEST, positions(folder) or LONGEST)
    else:
        check_positions(folder, context)
    hardware = Hardware(engine=engine, max_model_len=context, max_num_seqs=16, batch_size=16)
    store, places = Store(root), {base.sha256: folder}
    scorer = found_reward_model(reward, places) if reward and chosen.reward not in ("", CERTAINTY) else None
    store.prepare()
    charging = Charging.apart(CHARGED_TO, hardware, store, CHARGED_TO, Budget())
    with (
        metered(charging.meter_on(hardware, store)) as charged,
        stages_on(store, charged, hardware=hardware, places=places),
    ):
        made = search_question(
            question=problem,
            policy=policy,
            sampling=Sampling(max_tokens=max_tokens, seed=seed),
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
        return
    for line in tree_of(rows.to_pylist(), tokens):
        click.echo(line)


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
