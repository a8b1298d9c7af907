"""`varband search`: what a study's policies are worth when one answer must be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli import options
from cli.run import carry_out, request_of, study_options


def tokens_of(budget: str) -> int:
    """What `tokens=N` says. Errors: UserError for anything else."""
    from storage.errors import UserError

    name, _, number = budget.replace(" ", "").replace("_", "").partition("=")
    if name != "tokens" or not number.isdecimal():
        raise UserError(f"--budget {budget}: a search's budget is tokens a problem, e.g. tokens=16384")
    return int(number)


@click.command()
@study_options
@click.option(
    "--methods",
    required=True,
    metavar="NAMES",
    help="Comma-separated, each with parameters where wanted: majority,early_stopped:width=32",
)
@click.option("--budget", metavar="tokens=N", help="Of prompts and completions, a problem.  [default: the profile's]")
@click.option(
    "--spending", metavar="LIMITS", help="The most that the whole run may spend, e.g. tokens=2e6; as run's --budget."
)
@options.engine
@click.option("--plain", is_flag=True, help="Do not show the run on the Prefect server at PREFECT_API_URL.")
@options.as_json
def search(
    root: Path,
    methods: str,
    budget: str | None,
    spending: str | None,
    as_json: bool,
    settings: tuple[str, ...],
    **wishes: Any,
) -> None:
    """Search the held-out problems of a study under METHODS, before training and after: accuracy against tokens.

    The study is made as `varband run` makes it; what is there is reused, rollouts that methods share are paid once.
    """
    from flows.study.set_option import parts_of
    from storage.errors import UserError

    if not parts_of(methods):
        raise UserError("--methods names none; write e.g. majority,likeliest (docs/search.md lists them)")
    asked = (*settings, f"search.methods={methods}", *((f"search.tokens={tokens_of(budget)}",) if budget else ()))
    report = carry_out(request_of(settings=asked, **wishes), root, spending, as_json=as_json)
    if not as_json:
        from cli.tables import print_table
        from storage.reading.query_cache import ask

        found = ask(root, str(report), "report_search_best")
        rates = ["right_rate", "right_rate_low", "right_rate_high", "elsewhere_rate", "ceiling_rate"]
        columns = ["arm", "step", "budget", "method", *rates]
        print_table(found.select(columns), as_json=False, title="the best method at each budget of tokens a problem")
