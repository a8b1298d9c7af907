"""`varband`: commands are loaded when they are called, so that `--help` costs no more than click."""

from __future__ import annotations

import importlib
import os
import sys
import warnings

import click

from storage.errors import Notice, UserError, did_you_mean, disk_fault, printable
from storage.stopping import stopped_by_signals

#: command → (module:attribute, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("cli.run:run", "Run a study: make what is missing, reuse what is there."),
    "study": ("cli.study:study", "A study of your own, one file: new, check, show, diff."),
    "search": ("cli.search:search", "Search at test time: one answer within a budget of tokens, by several methods."),
    "ask": ("cli.ask:ask", "One problem under a method of search, with its tree."),
    "plan": ("cli.run:plan", "What a run would make, reuse and cost, without making it."),
    "resume": ("cli.operations:resume", "Go on with a parked or interrupted run."),
    "runs": ("cli.operations:runs", "Runs of the store: state, stage, spending."),
    "ls": ("cli.store:ls", "Artifacts of the store."),
    "show": ("cli.store:show", "One artifact: rows, schema, lineage."),
    "compare": ("cli.compare:compare", "Two studies: settings that differ, figures side by side."),
    "rm": ("cli.compare:rm", "Remove a study or an artifact, to the bin."),
    "sql": ("cli.store:sql", "SQL over the store's catalog."),
    "gc": ("cli.store:gc", "What nobody wants any more, moved to a bin."),
    "verify": ("cli.store:verify", "Read everything in the store and say what is damaged."),
    "pin": ("cli.store:pin", "Keep an artifact, whatever gc is told."),
    "export": ("cli.exporting:export", "Copy a study into another root; figures and tables for a paper."),
    "pool": ("cli.pool:pool", "Build and check pools of problems."),
    "split": ("cli.split:split", "Draw or import a held-out split."),
    "grade": ("cli.grade:grade", "Grade your own rollouts with the grader that training uses."),
    "grader": ("cli.grade:grader", "The grader's adversarial self-test."),
    "regrade": ("cli.grade:regrade", "Apply a new grader version to stored rollouts."),
    "replay": ("cli.analysis:replay", "Recompute the published study from its files."),
    "audit": ("cli.analysis:audit", "Recompute every claim and lint the designs of a store."),
    "power": ("cli.analysis:power", "Power of a planned comparison."),
    "report": ("cli.look:report", "Write the report of a run as HTML and Markdown."),
    "serve": ("cli.look:serve", "Open the dashboards on 127.0.0.1."),
    "gallery": ("cli.look:gallery", "A static side-by-side page of chosen problems."),
    "chat": ("cli.chat:chat", "Ask a policy in the terminal."),
    "server": ("cli.operations:server", "Start the team's Prefect server."),
    "demo-server": ("cli.demo_server:demo_server", "Server, worker, dashboards and one study: everything at once."),
    "deploy": ("cli.operations:deploy", "Register all deployments with a Prefect server."),
    "doctor": ("cli.operations:doctor", "Check root, server, pool, versions, GPUs and disk."),
    "completion": ("cli.completion:completion", "What a shell needs to complete these words."),
    "demo-model": ("cli.demo_model:demo_model", "Pretrain the demo's base model again."),
}


class LazyGroup(click.Group):
    """A click group whose commands are named in a table and imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            ctx.fail(f"no command '{cmd_name}'{did_you_mean(cmd_name, COMMANDS)} (see: varband --help)")
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="varband")
@click.pass_context
def varband(context: click.Context) -> None:
    """Experiments on how reasoning scaffolds train. Without a command: what to do next."""
    if context.invoked_subcommand is None:
        from cli.next_steps import next_steps
        from storage.roots import root_folder

        for line in next_steps(root_folder(os.environ.get("VARBAND_ROOT", ".varband"))):
            click.echo(printable(line))


def main() -> None:
    """The entry point: a user's mistake is one sentence on standard error and an exit code, never a traceback."""
    shown = warnings.showwarning
    warnings.filterwarnings("default", category=Notice)  # also where the environment silences libraries
    warnings.showwarning = lambda message, *rest, **more: (
        click.echo(printable(f"varband: {message}", kept="\n"), err=True)
        if isinstance(message, Notice)
        else shown(message, *rest, **more)
    )
    try:
        with stopped_by_signals():
            varband(standalone_mode=False)
    except UserError as error:
        click.echo(printable(f"varband: {error}", kept="\n"), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("varband: interrupted; what was made is kept, the same command goes on", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        if (said := disk_fault(error)) is None:
            raise
        click.echo(f"varband: {said}", err=True)
        sys.exit(UserError.exit_code)


if __name__ == "__main__":
    main()
