"""The `varband` command. Subcommands are imported when they are called, so that `--help` is fast."""

import importlib
import sys
import warnings

import click

from storage.errors import Notice, UserError, did_you_mean, disk_fault, printable
from storage.stopping import stopped_by_signals

#: Command → (module:attribute, one line of help).
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("cli.run:run", "Run a study: make missing artifacts, reuse existing ones."),
    "plan": ("cli.run:plan", "Show what a run would make, reuse and cost. Makes nothing."),
    "submit": ("cli.run:submit", "Submit a study to Slurm; its jobs pause and resume."),
    "resume": ("cli.run:resume", "Resume a paused, interrupted or crashed run."),
    "report": ("cli.report:report", "Write the report of a run as HTML and Markdown, or compare two."),
    "serve": ("cli.report:serve", "Open the dashboards on 127.0.0.1."),
    "ask": ("cli.ask:ask", "Ask a policy in the terminal for a completion."),
    "runs": ("cli.run:runs", "List the runs of the store: state, stage, spending."),
    "study": ("cli.study:study", "Write, check, show, compare and register studies, each one file."),
    "store": ("cli.store:store", "List, show, query, remove and verify artifacts."),
    "export": ("cli.export:export", "Copy a study to another root; write figures, tables and galleries."),
    "import": ("cli.export:import_", "Import rollouts of other tools, and compare them."),
    "pool": ("cli.pool:pool", "Make a pool of problems, check it and split it."),
    "grade": ("cli.grade:grade", "Grade rollouts, again or for the first time; test the grader."),
    "audit": ("cli.analysis:audit", "Recompute every claim and check the designs of a store."),
    "replay": ("cli.analysis:replay", "Recompute the published study from its files."),
    "power": ("cli.analysis:power", "Simulate the power of a planned comparison."),
    "server": ("cli.server:server", "Start the team's Prefect server, and register deployments with it."),
    "tinker": ("cli.server:tinker", "Serve the Tinker API from this machine."),
    "doctor": ("cli.server:doctor", "Check root, server, pool, versions, GPUs and disk."),
}


class LazyGroup(click.Group):
    """A click group whose commands are listed in COMMANDS and imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            groups = {name: self.get_command(ctx, name) for name in COMMANDS}
            inside = [n for n, group in groups.items() if isinstance(group, click.Group) and cmd_name in group.commands]
            hint = f"; it is varband {inside[0]} {cmd_name}" if inside else did_you_mean(cmd_name, COMMANDS)
            ctx.fail(f"no command '{cmd_name}'{hint} (see: varband --help)")
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="varband")
def varband() -> None:
    """Run experiments on how reasoning scaffolds train. Start with `varband run demo`."""


def main() -> None:
    """Run the command line. A user's mistake gives one sentence on standard error, and an exit code."""
    usual = warnings.showwarning
    warnings.filterwarnings("default", category=Notice)  # even if the environment switches warnings off
    warnings.showwarning = lambda message, *rest, **more: (
        click.echo(printable(f"varband: {message}", kept="\n"), err=True)
        if isinstance(message, Notice)
        else usual(message, *rest, **more)
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
        click.echo("varband: interrupted; finished artifacts are kept; repeat the command to continue", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        if (sentence := disk_fault(error)) is None:
            raise
        click.echo(f"varband: {sentence}", err=True)
        sys.exit(UserError.exit_code)


if __name__ == "__main__":
    main()
