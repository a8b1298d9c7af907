"""A demo small enough to be run and killed a dozen times: every stage, both arms, four steps."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm
from tests.warm import SHELL

SETTINGS = (
    "pool.synthetic=16",
    "pool.heldout_per_source=4",
    "training.steps=4",
    "training.eval_every=2",
    "training.groups_per_step=4",
    "screening.group_size=4",
    "evaluation.group_size=2",
    "final.group_size=4",
    "passk.ks=1,2,4",
    "passk.draws=500",
    "hardware.arms_at_once=1",  # two test workers share two cores, and every process imports an engine
)
#: As the profile has it.
SIDE_BY_SIDE = ("--set", "hardware.arms_at_once=2")


def command(root: Path, *more: str, verb: str = "run") -> list[str]:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    return [warm.VARBAND, verb, "demo", "--root", str(root), "--json", *sets, *more]


def environment() -> dict[str, str]:
    return {**SHELL, "DO_NOT_TRACK": "1", "PYTHONHASHSEED": "random"}


def start(root: Path, *more: str) -> subprocess.Popen[str]:
    """As a shell does: with its own imports and its own seed of hashes."""
    return subprocess.Popen(
        [sys.executable, *command(root, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root.parent,
        env=environment(),
        start_new_session=True,
    )


def ended(root: Path, *more: str, verb: str = "run") -> subprocess.CompletedProcess[str]:
    return warm.run(command(root, *more, verb=verb), cwd=root.parent, env=environment(), engine=verb == "run")


def finish(root: Path, *more: str, verb: str = "run") -> dict[str, Any]:
    """The JSON object that the command ends with."""
    done = ended(root, *more, verb=verb)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def hashes(root: Path) -> dict[str, list[str]]:
    """sha256 of every file of every artifact, the report's pages without their times."""
    found = {}
    for manifest in sorted(root.glob("*/*/manifest.json")):
        recorded = json.loads(manifest.read_text())
        kept = [f["sha256"] for f in recorded["files"] if not f["path"].startswith("files/report.")]
        found[manifest.parent.name] = kept
    return found


def report_text(root: Path) -> str:
    """The report without what is marked as wall-clock time and without the commit that it was made at."""
    pages = sorted(root.glob("report/*/files/report.html"))
    bare = [re.sub(r"<time\b.*?</time>", "", page.read_text(), flags=re.DOTALL) for page in pages]
    return "\n".join(re.sub(r">[0-9a-f]{12}(\+dirty)?<", "><", text) for text in bare)
