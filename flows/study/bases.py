"""What each arm stands on: its base model, and an adapter that was made elsewhere where it starts from, or is, one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from flows.study.hub import called
from flows.study.models import adapter_folder, digest_of, found_model, model_folder
from flows.study.profile import Profile
from flows.study.ranks import trainings
from tasks.domain.policies import BaseModel, MadeElsewhere, check_bases
from tasks.engines.adapter_files import AdapterFiles, adapter_files
from tasks.engines.learning.own_forward import check_positions, check_trainable

T = TypeVar("T")
#: Asks for one input, which the field of this path names; null where it is not on this machine.
Sought = Callable[[Callable[[], T], tuple[str, ...]], T | None]


def unnamed(name: str) -> BaseModel:
    """A model that is not on this machine: nothing that was made with it can be known by name."""
    return BaseModel(name=called(name), sha256=f"not here: {name}")


def found_bases(
    profile: Profile, wish: Path | None, places: dict[str, Path], sought: Sought, *, fetch: bool
) -> dict[str, BaseModel]:
    """Of each arm, and of the arm whose adapter it is evaluated with. wish: in place of the study's own model."""
    models: dict[str, BaseModel] = {}
    by_name: dict[str, BaseModel] = {}
    for arm in dict.fromkeys(name for one in profile.arms for name in (one, profile.arm(one).head)):
        name = profile.base_of(arm)
        if name not in by_name:
            own = wish if name == profile.model else None
            shown = str(own) if own is not None and digest_of(own) is None else name
            told = () if own is not None else ("model",) if name == profile.model else ("arms", arm, "model")
            found = sought(lambda shown=shown, own=own: _base(profile, shown, own, places, fetch), told)
            by_name[name] = found or unnamed(name)
        models[arm] = by_name[name]
    return models


def _base(profile: Profile, name: str, wish: Path | None, places: dict[str, Path], fetch: bool) -> BaseModel:
    base = found_model(name, wish, lambda name: model_folder(name, fetch), places)
    if base.sha256 in places and profile.hardware.engine != "openai":
        check_positions(places[base.sha256], profile.hardware.max_model_len)
        on_gpu, longest = profile.hardware.device == "cuda", profile.hardware.max_model_len
        for head in (head for head in profile.heads(profile.arms) if profile.base_of(head) == name):
            for learner in (learner for learner in trainings(profile, head) if learner.steps):
                check_trainable(places[base.sha256], learner, gpu=on_gpu, longest=longest)
    return base


def found_adapters(
    profile: Profile, models: Mapping[str, BaseModel], places: dict[str, Path], sought: Sought, *, fetch: bool
) -> tuple[dict[str, MadeElsewhere], dict[str, int]]:
    """Adapters by arm, and by base model the largest rank among them."""
    adapters: dict[str, MadeElsewhere] = {}
    ranks: dict[str, int] = {}
    for arm in dict.fromkeys(profile.arm(one).head for one in profile.arms):
        if name := profile.arm(arm).adapter:
            base = models[arm]
            found = sought(
                lambda arm=arm, name=name: _adapter(profile, arm, name, places.get(models[arm].sha256), fetch),
                ("arms", arm, "adapter"),
            )
            if found is None:
                adapters[arm] = MadeElsewhere(name=called(name), sha256=f"not here: {name}")
                continue
            adapters[arm] = MadeElsewhere(name=called(name), sha256=found.digest)
            places[found.digest] = found.folder
            ranks[base.sha256] = max(found.largest_rank, ranks.get(base.sha256, 0))
    return adapters, ranks


def refuse_other_bases(profile: Profile, models: Mapping[str, BaseModel], sought: Sought) -> None:
    """Of arms that are evaluated with another's adapter: one is trained, or is there already."""
    trains = bool(profile.training.steps and profile.seeds)
    for arm in map(profile.arm, profile.arms):
        adapted = trains or profile.arm(arm.head).adapter or any(arm.head in x.arms for x in profile.lessons)
        if arm.trained_as not in (None, arm.name) and adapted:
            sought(lambda arm=arm: check_bases(models, [arm]), ("arms", arm.name, "model"))


def _adapter(profile: Profile, arm: str, name: str, base: Path | None, fetch: bool) -> AdapterFiles:
    """base: its folder; null where it is elsewhere. Errors: UserError for one that this arm cannot start from or be."""
    found = adapter_files(adapter_folder(name, fetch))
    if base is not None:
        found.check_base(base)
    learner = profile.training
    if profile.heads([arm]) and learner.steps and profile.seeds:
        found.check_recipe(learner.lora_rank, learner.lora_alpha, learner.target_modules, learner.expert_rank)
    return found
