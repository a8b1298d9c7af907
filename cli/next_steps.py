"""`varband` alone: what there is, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

#: Of each state no more than so many runs.
SHOWN = 3


def next_steps(root: Path) -> Iterator[str]:
    """What a person would do now, given the state of the root: first what waits for them, then what is new."""
    from storage.records.runs import all_runs

    runs = all_runs(root) if root.is_dir() else []
    if not runs:
        yield f"{root}: no run yet. To begin with:"
        yield "  varband run demo          the whole experiment on this machine, a few minutes"
        yield "  varband study new NAME    a study of your own, one file (docs/studies.md)"
        yield "  varband plan paper        what the published study would take; needs no weights and no data"
        yield "  varband doctor            once there is a root: is everything here that a run needs?"
    stopped = [run for run in runs if run.shown_state in ("parked", "interrupted", "crashed", "failed")]
    for run in [run for run in runs if run.shown_state == "running"][:SHOWN]:
        yield f"{run.id} is at work: {run.at or 'beginning'}, {run.stages_done} of {run.stages} stages; watch it with"
        yield "  varband serve"
    for run in stopped[:SHOWN]:
        # what parks says itself which command goes on: without more budget the same one meets the same wall
        why, _, onward = run.why.removeprefix("parked: ").partition("; `varband resume ")
        mended = "once that is mended " if run.shown_state == "failed" else ""
        yield f"{run.id} is {run.shown_state}{f': {why}' if why else ''}; {mended}it goes on with"
        yield f"  varband resume {onward.partition('`')[0] or run.id}"
    if len(stopped) > SHOWN:
        yield f"and {len(stopped) - SHOWN} more that wait: varband runs"
    finished = [run for run in runs if run.shown_state == "finished" and run.report]
    if finished:
        newest = finished[0]
        yield f"{newest.profile} is finished ({newest.id}); read it with"
        yield f"  varband report {newest.id}"
        yield "  varband serve"
        if other := next((run for run in finished if run.report != newest.report), None):
            yield f"  varband compare {other.id} {newest.id}"
        else:
            yield "  varband study new NAME    and ask something else"
    yield "varband --help lists every command; varband completion bash|zsh|fish completes them."
