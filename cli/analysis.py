"""`varband replay`, `audit`, `power`: the study recomputed, its claims checked, the next one sized."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import options

if TYPE_CHECKING:
    from tasks.stage import Progress


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="VARBAND_ROOT",
    help="Keep the artifacts in this store; without it they are dropped at the end.",
)
@options.as_json
def replay(folder: Path, root: Path | None, as_json: bool) -> None:
    """Recompute the published study from its files in FOLDER (it holds data/ and reports/)."""
    from flows.replay import replay as run
    from flows.replay import summary
    from storage.artifacts.store import Store

    with tempfile.TemporaryDirectory(prefix="varband-replay-") as aside:
        store = Store(root or Path(aside))
        result = summary(store, run(folder, store, _teller(as_json)))
    if as_json:
        options.write_json(result)
        return
    _show_replay(result)
    click.echo(f"kept in {root}: varband audit --root {root}" if root else "nothing kept; to audit it, give --root")


def _teller(as_json: bool) -> Callable[[Progress], None]:
    def tell(event: Progress) -> None:
        if event.event == "made" and not as_json and sys.stderr.isatty():
            click.echo(f"  {event.title:<24} {event.done:>5} rows {event.seconds:>6.1f} s  {event.ref}", err=True)

    return tell


def _show_replay(r: dict[str, Any]) -> None:
    b, x = r["bands"], r["crosstab"]
    click.echo("Bands (all_zero / variance / all_one)")
    for arm in ("panel", "thinking"):
        click.echo(f"  {arm:<9} {b[arm]['all_zero']:>4} / {b[arm]['variance']} / {b[arm]['all_one']}  of {b[arm]['n']}")
    click.echo(
        f"  ratio of variance bands {b['ratio']:.2f} [{b['ratio_low']:.2f}, {b['ratio_high']:.2f}];"
        f" shared {x['shared_variance']}; McNemar {_p(x['mcnemar'])}"
    )
    click.echo("Splits  " + ", ".join(f"{k} {v['n']}" for k, v in r["splits"].items() if k != "checks"))
    click.echo("Diversity (mean pairwise cosine distance)")
    for name, rows in r["diversity"].items():
        for d in (d for d in rows if (d["arm"], d["other"]) == ("panel", "thinking")):
            click.echo(
                f"  {name:<28} {d['mean']:.3f} / {d['other_mean']:.3f}  t = {d['t']:.2f}, n = {d['n']},"
                f" {_p(d)} by the problems' kurtosis (Student's t: {d['uncorrected']['p_t']:.1e};"
                f" printed from a normal: {d['uncorrected']['p_normal']:.1e})"
            )
    click.echo("pass@k gap, panel - thinking (pp)")
    for name, p in r["passk"].items():
        c, shift, beyond = (p[m] for m in ("closure", "closure_of_shift", "closure_beyond_shift"))
        click.echo(
            f"  {name:<28} {p['gap_first_pp']:+.1f} at k = 1, {p['gap_last_pp']:+.1f} at k = {c['k']}: closes by"
            f" {p['closure_pp']:+.1f} [{100 * c['low']:+.1f}, {100 * c['high']:+.1f}], "
            f"{100 * shift['estimate']:+.1f} by a shift of logits; beyond it {100 * beyond['estimate']:+.1f}"
            f" [{100 * beyond['low']:+.1f}, {100 * beyond['high']:+.1f}]"
        )
    click.echo("Solved by both / panel only / thinking only / neither")
    for name, h in r["solved_by"].items():
        click.echo(
            f"  {name:<28} "
            + " / ".join(str(h["counts"][k]) for k in h["counts"])
            + ("" if h["equal_n"] else "  (unequal n)")
        )
    t = r["trajectory"]
    click.echo(f"Held-out  {t['first']:.0%} at step 0, {t['last']:.0%} at step {t['last_step']}")
    for source, g in t["gains"].items():
        click.echo(f"  {source:<14} {100 * g['estimate']:+5.1f} pp [{100 * g['low']:+.1f}, {100 * g['high']:+.1f}]")
    tokens = r["token_efficiency"]
    click.echo(
        f"Token table  {'consistent' if tokens['consistent'] else 'inconsistent'} with itself; not recomputable:"
        f" {tokens['reason']}"
    )
    click.echo(f"Audit  {len(r['audit'])} findings: " + ", ".join(dict.fromkeys(f["code"] for f in r["audit"])))


def _p(row: dict[str, Any]) -> str:
    return f"p = {row['p_adjusted']:.1e} (raw {row['p_value']:.1e})"


@click.command()
@options.root_there
@click.option("--claims", type=click.Path(path_type=Path), help="Claims to check; without it, the project's own.")
@click.option("--strict", is_flag=True, help="Exit with 1 if a claim is off.")
@options.as_json
def audit(root: Path, claims: Path | None, strict: bool, as_json: bool) -> None:
    """Recompute every claim on a store and lint the designs behind its figures."""
    from flows.upkeep.store_audit import audit as run
    from storage.artifacts.store import Store
    from storage.reading.claims import CLAIMS

    result = run(Store(root), claims or CLAIMS)
    if as_json:
        options.write_json(result)
    else:
        _show_audit(result, listed=claims is not None)
    if strict and result["counts"]["off"]:
        sys.exit(1)


def _show_audit(result: dict[str, Any], *, listed: bool) -> None:
    """listed: also the claims that this store has no rows for, which are most of the published study's."""
    said = {"holds": "holds  ", "off": "OFF    ", "unknown": "unknown"}
    by_reason: dict[str, list[str]] = {}
    for c in result["claims"]:
        if c["status"] == "unknown":
            by_reason.setdefault(c["reason"], []).append(c["id"])
            continue
        size = f" found {c['found']:.4g}, off by {c['off_by']:+.3g}" if c["status"] == "off" else ""
        click.echo(f"{said[c['status']]} {c['id']:<28} {c['text']}{size}")
    for reason, ids in by_reason.items() if listed else ():
        first = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        click.echo(f"{said['unknown']} {first}: cannot be computed because {reason}")
    for r in result["reports"]:
        if r["status"] != "holds":
            click.echo(f"{said[r['status']]} {r['report']} {r.get('figure', '')} {r['reason']}")
    held = sum(r["status"] == "holds" for r in result["reports"])
    if held:
        click.echo(f"{said['holds']} {held} figures of {len({r['report'] for r in result['reports']})} report(s)")
    for f in result["findings"]:
        by = f"  [{f['query']}]" if f["query"] else ""
        click.echo(f"\n{f['code']}: {f['fact']}\n    {f['inference']}\n    {f['place']}{by}")
    n = result["counts"]
    click.echo(f"\n{n['holds']} hold, {n['off']} off, {n['unknown']} cannot be computed; {n['findings']} findings")


@click.command()
@click.option(
    "--effect",
    type=options.Number(0.001, 0.9),
    default=0.05,
    show_default=True,
    help="Difference in accuracy to find, as a share: 0.05 is 5 pp.",
)
@click.option(
    "-n",
    "--problems",
    type=click.IntRange(2, 100_000),
    multiple=True,
    default=(100, 310, 877),
    show_default=True,
    help="Held-out problems; may be given several times.",
)
@click.option(
    "-g",
    "--group-size",
    type=click.IntRange(1, 4096),
    multiple=True,
    default=(1, 4, 8, 16),
    show_default=True,
    help="Rollouts a problem in each arm; may be given several times.",
)
@click.option(
    "--question",
    type=click.Choice(["accuracy", "gains", "diversity"]),
    default="accuracy",
    show_default=True,
    help="Two policies' accuracy; the difference of two arms' gains; mean pairwise distance.",
)
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Trainings of each policy.")
@click.option(
    "--seed-sd",
    type=options.Number(0.0, 0.5),
    default=0.0,
    show_default=True,
    help="Standard deviation of a seed's accuracy, as a share: 0.03 is 3 pp; of its distance for diversity.",
)
@click.option(
    "--difficulty",
    metavar="MEAN|ARM",
    default="",
    help="Mean accuracy as a share, or an arm whose rollouts before training are in --root. [default: as published]",
)
@options.root
@click.option("-k", type=click.IntRange(1, 4096), default=1, show_default=True, help="Compare pass@k.")
@click.option("--alpha", type=options.Number(0.0001, 0.5), default=0.05, show_default=True)
@click.option("--trials", type=click.IntRange(100, 100_000), default=2000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@options.as_json
def power(
    effect: float,
    problems: tuple[int, ...],
    group_size: tuple[int, ...],
    alpha: float,
    trials: int,
    seed: int,
    difficulty: str,
    root: Path,
    as_json: bool,
    **asked: Any,
) -> None:
    """Simulate how often a paired comparison of this size finds an effect, and which effect it would mostly find."""
    from dataclasses import asdict

    from storage.errors import UserError
    from tasks.domain.statistics.power import Design, simulate

    try:
        beta, source = _difficulty(difficulty, root)
        designs = [Design(num_problems=n, group_size=g, difficulty=beta, **asked) for n in problems for g in group_size]
    except ValueError as error:
        raise UserError(f"power: {error}") from None
    try:
        plans = [simulate(effect, design, alpha=alpha, trials=trials, seed=seed) for design in designs]
    except ValueError as error:
        raise UserError(f"power: {error}; give a smaller --effect") from None
    if as_json:
        rows = [asdict(p) for p in plans]
        options.write_json(
            {"effect": effect, "alpha": alpha, "trials": trials, **asked, "difficulty": beta, "designs": rows}
        )
        return
    what, unit = _power_of(effect, **asked)
    click.echo(f"Power to find {what}: t over problems and seeds, alpha {alpha:g}, {trials} simulated studies")
    click.echo(f"Difficulty: {source}, mean accuracy {beta[0] / sum(beta):.2f}")
    click.echo("In brackets: what 80 % of such studies would find")
    click.echo("  problems " + "".join(f"{f'G={g}':>17}" for g in group_size))
    for n in problems:
        row = [p for p in plans if p.num_problems == n]
        told = (f"{p.power:.0%} ({'none' if p.detectable is None else unit(p.detectable)})" for p in row)
        click.echo(f"  {n:>8} " + "".join(f"{text:>17}" for text in told))


def _difficulty(wish: str, root: Path) -> tuple[tuple[float, float], str]:
    """Return the Beta distribution of problems' accuracy, and where it is from.

    Errors: UserError for an arm without rollouts before training in the root; ValueError for one whose do not tell.
    """
    from storage.errors import UserError
    from storage.reading.catalog import ask
    from tasks.domain.statistics.power import DIFFICULTY, difficulty_of_counts, difficulty_of_mean

    if not wish:
        return DIFFICULTY, "the published panel screening"
    try:
        mean = float(wish)
    except ValueError:
        quoted = wish.replace("'", "''")
        rows = ask(
            options.check_there(root),
            "select count(*) as n, count(*) filter (correct) as c from (select distinct problem_id, rollout, adapter,"
            f" correct from rollouts where arm = '{quoted}' and step = 0) group by problem_id, adapter",
        ).to_pylist()
        if not rows:
            raise UserError(f"--difficulty {wish}: {root} has no rollouts of an arm of that name") from None
        return difficulty_of_counts([(row["n"], row["c"]) for row in rows]), f"{wish} on {len(rows)} problems of {root}"
    if not 0 < mean < 1:
        raise UserError(f"--difficulty {wish}: a mean accuracy lies between 0 and 1")
    return difficulty_of_mean(mean), "as spread out as the published screening"


def _power_of(effect: float, question: str, seeds: int, seed_sd: float, k: int) -> tuple[str, Callable[[float], str]]:
    """What is looked for, in words, and how a size of it is written."""
    told, over = seeds > 1 or seed_sd > 0, f"{seeds} seed{'s' if seeds > 1 else ''} each"
    if question == "diversity":
        over = f", {over} that differ by {seed_sd:.3f}" if told else ""
        return f"{effect:+.3f} in mean pairwise distance{over}", lambda size: f"{size:.3f}"
    of = ("" if k == 1 else f" of pass@{k}") + (" in the difference of gains" if question == "gains" else "")
    over = f", {over} that differ by {100 * seed_sd:.1f} pp" if told else ""
    return f"{100 * effect:+.1f} pp{of}{over}", lambda size: f"{100 * size:.1f} pp"
