"""Whether the disk holds what a plan's trainings leave there, known before anything is paid for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from flows.running.plan import Planned
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.engines.hardware import num_gpus
from tasks.engines.memory import disk_bytes, execution_on, kept_bytes, readable
from tasks.engines.model_files import read_config


def check_room(study: Study, store: Store, planned: Sequence[Planned]) -> None:
    """Of trainings that are to be made here and whose base is: what all of them keep, and what those at once have on
    its way beside that. What a training that was begun has written is written over.

    Errors: UserError where that is more than there is room for.
    """
    hardware, kept, on_its_way, held, arms = study.profile.hardware, 0, 0, 0, set[object]()
    for one in planned:
        given = one.step.arguments
        if not one.made_here or one.step.ref.kind != "training" or "learner" not in given:
            continue
        if (base := study.places.get(given["start"].model.sha256)) is None:
            continue
        learner, execution = given["learner"], execution_on(hardware, read_config(base))
        kept += (stays := kept_bytes(base, learner))
        on_its_way = max(on_its_way, disk_bytes(base, learner, execution) - stays)
        begun = store.root / ".work" / str(one.step.ref)
        held += sum(file.stat().st_size for file in begun.rglob("*") if file.is_file())
        arms.add((given["start"].arm, learner.seed))
    at_once = min(hardware.arms_at_once, len(arms))
    needed = kept + at_once * on_its_way
    there = next(folder for folder in (store.root, *store.root.absolute().parents) if folder.is_dir())
    room = held + shutil.disk_usage(there).free
    if needed > room:
        several = f"{at_once} at once" if at_once > 1 else "one"
        fewer = "fewer arms at once (hardware.arms_at_once), " if at_once > 1 else ""
        raise UserError(
            f"{there}: trainings keep {readable(kept)} of adapters there, beside {readable(at_once * on_its_way)}"
            f" of {several} on the way, and there is room for {readable(room)};"
            f" make room, or take {fewer}fewer adapters (training.eval_every) or a smaller lora_rank"
        )


def told(study: Study, store: Store, planned: Sequence[Planned]) -> str:
    """For the plan; empty where all of it has room, and on a machine without the GPUs that it is to be made on."""
    if study.profile.hardware.device == "cuda" and not num_gpus():
        return ""
    try:
        check_room(study, store, planned)
    except UserError as refused:
        return f"this machine would refuse it: {refused}"
    return ""
