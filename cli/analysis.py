"""`varband replay`, `audit` and `power`: recompute the published study, check claims, and plan the size of a study."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from cli import options
from cli.tables import print_table
from cli.view import Watch
from flows.replay import replay as run
from flows.replay import rows_of
from flows.upkeep.store_audit import audit as audited
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.reading.catalog import ask
from storage.reading.claims import CLAIMS
from tasks.domain.statistics.power import DIFFICULTY, Design, difficulty_of_counts, difficulty_of_mean, simulate


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="VARBAND_ROOT",
    help="Keep the artifacts in this store.  [default: delete them at the end]",
)
@options.as_json
def replay(folder: Path, root: Path | None, as_json: bool) -> None:
    """Recompute the published study from its files in FOLDER, which has data/ and reports/.

    Print whether each published figure holds, and the findings of the audit. With --json, print the rows of all tables.
    """
    with tempfile.TemporaryDirectory(prefix="varband-replay-") as aside, Watch(apart=True) as watch:
        store = Store(root or Path(aside))
        replayed = run(folder, store, watch.on_progress)
        if as_json:
            options.write_json(rows_of(store, replayed))
            return
        _show_audit(audited(store), listed=True)
    kept = f"artifacts are in {root}; check their claims with: varband audit --root {root}"
    click.echo(kept if root else "the artifacts are deleted; --root keeps them")


@click.command()
@options.root_there
@click.option("--claims", type=click.Path(path_type=Path), help="File with claims to check.  [default: this project's]")
@click.option("--strict", is_flag=True, help="Exit with code 1 if a claim does not hold.")
@options.as_json
def audit(root: Path, claims: Path | None, strict: bool, as_json: bool) -> None:
    """Recompute every claim from the store, and check the experiment designs behind the figures."""
    result = audited(Store(root), claims or CLAIMS)
    if as_json:
        options.write_json(result)
    else:
        _show_audit(result, listed=claims is not None)
    if strict and result["counts"]["off"]:
        sys.exit(1)


def _show_audit(result: dict[str, Any], *, listed: bool) -> None:
    """Print the result of an audit. listed: also print claims whose rows the store lacks."""
    words = {"holds": "holds  ", "off": "OFF    ", "unknown": "unknown"}
    for c in result["claims"]:
        size = f" found {c['found']:.4g}, off by {c['off_by']:+.3g}" if c["status"] == "off" else ""
        why = f": cannot be computed because {c['reason']}" if c["status"] == "unknown" else ""
        if listed or not why:
            click.echo(f"{words[c['status']]} {c['id']:<28} {c['text']}{size}{why}")
    held = [r for r in result["reports"] if r["status"] == "holds"]
    for r in (r for r in result["reports"] if r["status"] != "holds"):
        click.echo(f"{words[r['status']]} {r['report']} {r.get('figure', '')} {r['reason']}")
    if held:
        click.echo(f"{words['holds']} {len(held)} figures of {len({r['report'] for r in result['reports']})} report(s)")
    for f in result["findings"]:
        by = f"  [{f['query']}]" if f["query"] else ""
        click.echo(f"\n{f['code']}: {f['fact']}\n    {f['inference']}\n    {f['place']}{by}")
    n = result["counts"]
    click.echo(f"\n{n['holds']} hold, {n['off']} off, {n['unknown']} cannot be computed; {n['findings']} findings")


def _numbers(*names: str, most: int, default: tuple[int, ...], text: str) -> Callable[..., Any]:
    size = click.IntRange(1, most)
    more = f"{text}; may be given several times."
    return click.option(*names, type=size, multiple=True, default=default, help=more)


@click.command()
@click.option(
    "--effect",
    type=click.FloatRange(0.001, 0.9),
    default=0.05,
    help="Difference in accuracy to detect, as a share: 0.05 is 5 percentage points.",
)
@_numbers("-n", "--problems", most=100_000, default=(100, 310, 877), text="Held-out problems")
@_numbers("-g", "--group-size", most=4096, default=(1, 4, 8, 16), text="Rollouts per problem in each arm")
@click.option(
    "--question",
    type=click.Choice(["accuracy", "gains", "diversity"]),
    default="accuracy",
    help="Quantity to compare: accuracy of two policies, gains of two arms, or diversity (mean pairwise distance).",
)
@click.option("--seeds", type=click.IntRange(1, 100), default=1, help="Number of trainings of each policy.")
@click.option(
    "--seed-sd",
    type=click.FloatRange(0.0, 0.5),
    default=0.0,
    help="Standard deviation between seeds, of accuracy or distance; 0.03 is 3 percentage points.",
)
@click.option(
    "--difficulty",
    metavar="MEAN|ARM",
    help="Difficulty of the problems: their mean accuracy (0 to 1), or the name of an arm whose rollouts before"
    " training are in --root.  [default: that of the published study]",
)
@options.root
@click.option("-k", type=click.IntRange(1, 4096), default=1, help="Compare pass@k with this k.")
@click.option("--alpha", type=click.FloatRange(0.0001, 0.5), default=0.05, help="Significance level.")
@click.option("--trials", type=click.IntRange(100, 100_000), default=2000, help="Number of simulated studies.")
@click.option("--seed", type=int, default=0, help="Seed of the simulation.")
@options.as_json
def power(
    problems: tuple[int, ...],
    group_size: tuple[int, ...],
    difficulty: str | None,
    root: Path,
    as_json: bool,
    **how: Any,
) -> None:
    """Simulate paired comparisons of this size: print their power, and the effect that 80 % of them detect."""
    effect, simulated = how.pop("effect"), {name: how.pop(name) for name in ("alpha", "trials", "seed")}
    try:
        beta, source = _difficulty(difficulty, root)
        designs = [Design(num_problems=n, group_size=g, difficulty=beta, **how) for n in problems for g in group_size]
        plans = [simulate(effect, design, **simulated) for design in designs]
    except ValueError as error:
        raise UserError(f"power: {error}") from None
    if as_json:
        result = {"effect": effect, "alpha": simulated["alpha"], "trials": simulated["trials"], **how}
        options.write_json(result | {"difficulty": beta, "designs": plans})
        return
    differ = f", seeds: {how['seeds']}, SD between seeds: {how['seed_sd']:g}"
    studies = f"alpha {simulated['alpha']:g}, {simulated['trials']} simulated studies"
    click.echo(f"Power to find {effect:+g} in {how['question']}{differ}, {studies}")
    click.echo(f"Difficulty: {source}, mean accuracy {beta[0] / sum(beta):.2f}")
    click.echo("In brackets: the effect that 80 % of such studies detect")
    cells = {(p.num_problems, p.group_size): f"{p.power:.0%} ({p.detectable or 'none':.4})" for p in plans}
    rows = [{"problems": n, **{f"G={g}": cells[n, g] for g in group_size}} for n in problems]
    print_table(pa.Table.from_pylist(rows), as_json=False)


def _difficulty(wish: str | None, root: Path) -> tuple[tuple[float, float], str]:
    """Return the Beta distribution of problems' accuracy, and where it comes from. Raise UserError for an arm without
    rollouts before training in the root, and ValueError if there are too few."""
    if not wish:
        return DIFFICULTY, "the published panel screening"
    if wish.replace(".", "", 1).isdecimal():
        if not 0 < float(wish) < 1:
            raise UserError(f"--difficulty {wish}: a mean accuracy lies between 0 and 1")
        return difficulty_of_mean(float(wish)), "spread as in the published screening"
    quoted = wish.replace("'", "''")
    rows = ask(
        options.check_there(root),
        "select count(*) as n, count(*) filter (correct) as c from (select distinct problem_id, rollout, adapter,"
        f" correct from rollouts where arm = '{quoted}' and step = 0) group by problem_id, adapter",
    ).to_pylist()
    if not rows:
        raise UserError(f"--difficulty {wish}: {root} has no rollouts of an arm with this name")
    return difficulty_of_counts([(row["n"], row["c"]) for row in rows]), f"{wish} on {len(rows)} problems of {root}"
