"""`varband grade`: grade a file or the stored rollouts, and test the grader."""

import sys
from pathlib import Path

import click
import pyarrow as pa

from cli import options
from cli.tables import print_table
from cli.view import opened
from flows.study.request import profile_of
from flows.upkeep.regrading import regrade_store
from storage.errors import UserError
from storage.records.record import put_overrides
from storage.sql import query
from tasks.domain.grading.grading import Overrides, read_overrides
from tasks.engines.grading.graders import BUILT_IN, Graders, read_grade_items
from tasks.engines.grading.selftest import REFUSED, run_selftest

overrides_option = click.option(
    "--overrides",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of manual verdicts: JSON lines with answer, gold, verdict, reason.",
)


@click.group()
def grade() -> None:
    """Grade stored or new rollouts, and test the grader."""


@grade.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--study", metavar="PROFILE|STUDY.toml", help="Study that defines the arms in FILE.  [default: the built-in arms]"
)
@overrides_option
def file(file: Path, study: str | None, overrides: Path | None) -> None:
    """Grade the completions in FILE (`-`: standard input). FILE has JSON lines with arm, completion, gold and
    optionally finish ("length" if the completion was cut off). The arm's scaffold defines the kind of the answer, and
    whether it is in tags or boxed. Print one JSON line per row, in the same order: verdict, reason, answer, canonical,
    grader_version."""
    scaffolds = BUILT_IN
    if study is not None:
        profile = profile_of(study)
        scaffolds = {name: profile.arm(name).scaffold for name in profile.arms}
    items = read_grade_items(sys.stdin.buffer.read() if str(file) == "-" else file, scaffolds)
    given = Overrides() if overrides is None else read_overrides(_text(overrides), str(overrides))
    with Graders() as graders:
        for start in range(0, len(items), 1024):
            some = items[start : start + 1024]
            for item, found in zip(some, graders.grade(some), strict=True):
                verdict = given.apply(found, item.gold)
                row = {name: getattr(verdict, name) for name in ("verdict", "reason", "answer", "canonical")}
                options.write_json(row | {"grader_version": given.version(graders.version)})


@grade.command()
@options.as_json
def selftest(as_json: bool) -> None:
    """Test the grader on labelled adversarial answers, and print wrong verdicts by family. Exit code 1 if a verdict is
    wrong."""
    with Graders() as graders:
        outcomes = run_selftest(graders)
        version = graders.version
    columns = {
        "family": [o.case.family for o in outcomes],
        "fault": [o.fault for o in outcomes],
        "good": [o.case.expected in ("correct", REFUSED) for o in outcomes],
        "place": [*range(len(outcomes))],
    }
    table = query(
        "select family, count(*) as cases, count(*) filter (good) as should_pass,"
        " count(*) filter (fault = 'false positive') as false_positives,"
        " count(*) filter (fault = 'false negative') as false_negatives,"
        " count(*) filter (fault = 'other reason') as other_reason from rows group by 1 order by min(place)",
        rows=pa.table(columns),
    )
    print_table(table, as_json=as_json, title=f"grader {version}")
    bad = [o for o in outcomes if o.fault]
    for (family, item, expected), got, _ in bad:
        case = f"{family}: {item.completion[-60:]!r} for {item.gold[:40]!r}: expected {expected}"
        click.echo(f"{case}, got {got.verdict} ({got.reason})", err=True)
    if not as_json:
        wrong = sum(o.fault.startswith("false") for o in outcomes)
        click.echo(f"{len(outcomes)} cases, {wrong} graded wrongly")
    sys.exit(1 if bad else 0)


@grade.command("store")
@overrides_option
@options.root_there
@options.as_json
def regrade(overrides: Path | None, root: Path, as_json: bool) -> None:
    """Grade all stored rollouts again, without sampling. Print changed verdicts, changed figures, and the artifacts
    that depend on them. --overrides stays active in this root until you give an empty file. The next `varband run` uses
    the new verdicts; trained adapters do not change."""
    if overrides is not None:
        put_overrides(root, _text(overrides))
    with opened(root, {}) as store:
        found = regrade_store(store)
    if as_json:
        options.write_json(found.as_json())
        return
    for sentence in found.sentences():
        click.echo(sentence)
    if found.changes.num_rows:
        some = found.changes.select(["arm", "step", "answer", "gold", "was", "now", "reason"]).slice(0, 50)
        print_table(some, as_json=False, title="changes")
    if found.figures:
        print_table(pa.concat_tables(found.figures), as_json=False, title="figures")


def _text(path: Path) -> str:
    """Return the text of a file of overrides. Raise UserError with line and field of a wrong row."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
    read_overrides(text, str(path))
    return text
