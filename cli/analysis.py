"""`varband replay`, `audit`, `power`: the study recomputed, its claims checked, the next one sized."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from cli import options


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--root", type=click.Path(path_type=Path), envvar="VARBAND_ROOT",
              help="Keep the artifacts in this store; without it they are dropped at the end.")  # fmt: skip
@options.as_json
def replay(folder: Path, root: Path | None, as_json: bool) -> None:
    """Recompute the published study from its files in FOLDER (it holds data/ and reports/)."""
    from flows.replay import replay as run
    from flows.replay_summary import summary
    from storage.store import Store

    with tempfile.TemporaryDirectory(prefix="varband-replay-") as aside:
        store = Store(root or Path(aside))
        result = summary(store, run(folder, store, _teller(as_json)))
    if as_json:
        _dump(result)
        return
    _show_replay(result)
    click.echo(f"kept in {root}: varband audit --root {root}" if root else "nothing kept; to audit it, give --root")


def _teller(as_json: bool) -> Any:
    def tell(event: Any) -> None:
        if event.event == "made" and not as_json and sys.stderr.isatty():
            click.echo(f"  {event.title:<24} {event.done:>5} rows {event.seconds:>6.1f} s  {event.ref}", err=True)

    return tell


def _dump(value: object) -> None:
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS) + b"\n")


def _show_replay(r: dict[str, Any]) -> None:
    b, x = r["bands"], r["crosstab"]
    click.echo("Bands (all_zero / variance / all_one)")
    for arm in ("panel", "thinking"):
        click.echo(f"  {arm:<9} {b[arm]['all_zero']:>4} / {b[arm]['variance']} / {b[arm]['all_one']}  of {b[arm]['n']}")
    click.echo(
        f"  ratio of variance bands {b['ratio']:.2f}; shared {x['shared_variance']}; McNemar p {x['mcnemar_p']:.1e}"
    )
    click.echo("Splits  " + ", ".join(f"{k} {v['n']}" for k, v in r["splits"].items() if k != "checks"))
    click.echo("Diversity (mean pairwise cosine distance)")
    for name, rows in r["diversity"].items():
        for d in (d for d in rows if (d["arm"], d["other"]) == ("panel", "thinking")):
            click.echo(f"  {name:<28} {d['mean']:.3f} / {d['other_mean']:.3f}  t = {d['t']:.2f}, n = {d['n']},"
                       f" p = {d['p_t']:.1e} (printed from a normal: {d['p_normal']:.1e})")  # fmt: skip
    click.echo("pass@k gap, panel - thinking (pp)")
    for name, p in r["passk"].items():
        c = p["closure"]
        click.echo(f"  {name:<28} {p['gap_first_pp']:+.1f} at k = 1, {p['gap_last_pp']:+.1f} at k = {c['k']}: closes by"
                   f" {p['closure_pp']:+.1f} [{100 * c['low']:+.1f}, {100 * c['high']:+.1f}]")  # fmt: skip
    click.echo("Solved by both / panel only / thinking only / neither")
    for name, h in r["hard_problems"].items():
        click.echo(f"  {name:<28} " + " / ".join(str(h["counts"][k]) for k in h["counts"])
                   + ("" if h["equal_n"] else "  (unequal n)"))  # fmt: skip
    t = r["trajectory"]
    click.echo(f"Held-out  {t['first']:.0%} at step 0, {t['last']:.0%} at step {t['last_step']}")
    for source, g in t["gains"].items():
        click.echo(f"  {source:<14} {100 * g['estimate']:+5.1f} pp [{100 * g['low']:+.1f}, {100 * g['high']:+.1f}]")
    tokens = r["token_efficiency"]
    click.echo(f"Token table  {'consistent' if tokens['consistent'] else 'inconsistent'} with itself; not recomputable:"
               f" {tokens['reason']}")  # fmt: skip
    click.echo(f"Audit  {len(r['audit'])} findings: " + ", ".join(dict.fromkeys(f["code"] for f in r["audit"])))
