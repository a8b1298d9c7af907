"""Each fault once, or CHAOS_TIMES times at other moments. The tables of docs/reliability.md are of a hundred times each."""

import os
import random
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.chaos import distant, faults
from tests.chaos.faults import Fault
from tests.chaos.trial import CannotTry, TooLate, Trial, ended
from tests.chaos.whole import Left, left
from tests.s3_server import object_storage

pytestmark = pytest.mark.chaos
TIMES = int(os.environ.get("CHAOS_TIMES", "1"))


class SmallStudy:
    """A study to break, and what undisturbed runs of it leave and take. bucket: where its root is, for faults of storage."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.undisturbed = folder, Left({}, {}, 0)
        self.bucket: distant.Bucket | None = None
        self.seconds: dict[str, float] = {}

    def usual(self, reaches: str) -> float:
        """Seconds of an undisturbed run on a disk, or on object storage."""
        if reaches and "" not in self.seconds:
            self.usual("")  # which others are compared with
        for _ in range(0 if reaches in self.seconds else 2):  # the first one imports
            trial, began = Trial(self.empty(), self.undisturbed, 0.0, random.Random(0)), time.monotonic()
            if self.bucket and reaches:
                self.bucket.undisturbed(trial)
            else:
                ended(trial.start(), 0)
                if not self.undisturbed.files:
                    self.undisturbed = trial.undisturbed = left(trial.root)
                trial.compared()
            self.seconds[reaches] = time.monotonic() - began
        return self.seconds[reaches]

    def survives(self, kind: str, fault: Fault, seed: int) -> None:
        """Errors: Broken; CannotTry."""
        usual, moment, rng = (
            self.usual("storage" * (kind in distant.STORAGE_FAULTS)),
            -1.0,
            random.Random(f"{kind}/{seed}"),
        )
        while True:
            trial = Trial(self.empty(), self.undisturbed, usual, rng, moment)
            try:
                fault(trial)
                return
            except TooLate as late:  # the same moment of a run that takes no longer than this one did
                usual, moment = min(usual, late.seconds) * 0.98, trial.moment

    def empty(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self.folder


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> SmallStudy:
    return SmallStudy(tmp_path_factory.mktemp("chaos") / "trial")


@pytest.fixture(scope="module")
def bucket(study: SmallStudy) -> Iterator[distant.Bucket]:
    with object_storage() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in {**server.environment, "VARBAND_CACHE": ""}.items():
            patch.setenv(name, value)
        study.bucket = distant.Bucket(server)
        yield study.bucket


def survives(kind: str, fault: Fault, study: SmallStudy) -> None:
    try:
        for seed in range(TIMES):
            study.survives(kind, fault, seed)
    except CannotTry as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("kind", faults.FAULTS)
def test_the_same_command_finishes_as_if_nothing_had_happened(kind: str, study: SmallStudy) -> None:
    survives(kind, faults.FAULTS[kind], study)


@pytest.mark.parametrize("kind", distant.STORAGE_FAULTS)
def test_it_does_so_on_object_storage(kind: str, study: SmallStudy, bucket: distant.Bucket) -> None:
    survives(kind, partial(distant.STORAGE_FAULTS[kind], bucket), study)
