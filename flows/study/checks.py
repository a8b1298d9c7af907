"""Settings that do not go together though each is allowed. No file is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from flows.study.profile import Profile
from flows.study.reading import Fault
from storage.artifacts.kinds import ALWAYS, FROM_EMBEDDINGS, SOMETIMES
from storage.artifacts.ref import KINDS
from storage.errors import UserError, did_you_mean
from storage.reading.figures import FIGURES
from tasks.domain.grpo.credit import try_brought
from tasks.domain.grpo.learner_config import (
    LearnerConfig,
    check_kept_whole,
    check_layers,
    check_overlong,
    check_sampling,
)
from tasks.domain.grpo.losses import loss_for, refuse_unread
from tasks.domain.grpo.second_scaffold import second_scaffold
from tasks.domain.policies import Sampling
from tasks.domain.problems.sources import SOURCES


def faults_of(p: Profile) -> Iterator[Fault]:
    named = [*_arms(p), *_measures(p), *_unknown(("hardware", "without"), "kind", p.hardware.without, KINDS)]
    yield from named
    if any(fault.path[0] in ("arms", "lessons") for fault in named):
        return
    arms = [p.arm(name) for name in p.arms]
    trained = [arm.name for arm in arms if arm.trains]
    yield from _heads(p)
    yield from _trainings(p, trained)
    yield from _pool(p)
    yield from _rooms(p)
    if p.objectives and not trained:
        words = f"objectives are compared where an arm is trained, and none of {', '.join(p.arms)} is trained; name one"
        yield Fault(("objectives",), words)
    elif p.objectives and not p.seeds:
        yield Fault(("seeds",), "objectives are compared where something is trained, and seeds is empty; give some")
    if trained and p.seeds and p.train_on != "all":
        if p.screening.group_size == 1:
            words = "screening.group_size is 1, and one rollout is never right and wrong: no problem has a gradient"
            yield Fault(("screening", "group_size"), words)
        elif not p.screening.sampling.temperature:
            words = "screening.sampling.temperature is 0, and all rollouts of a problem are one: none has a gradient"
            yield Fault(("screening", "sampling", "temperature"), words)
    yield from _tried(("search",), lambda: p.search.check_served(p.final.sampling.max_tokens, arms))


def unread(p: Profile, settings: Iterable[str]) -> Iterator[Fault]:
    """settings: fields of the study's training that were changed."""
    trainings = (p.training, *(one.training for one in p.objectives))
    for name in settings:
        if name == "seed":
            words = "training.seed is of no effect: every arm is trained once for each of the study's seeds; set seeds"
            yield Fault(("training", name), words)
        yield from _tried(("training", name), lambda name=name: refuse_unread([name], trainings))


def _unknown(path: tuple[str, ...], what: str, names: Sequence[str], known: Iterable[str]) -> Iterator[Fault]:
    for name in names:
        if name not in known:
            words = f"unknown {what} '{name}'{did_you_mean(name, known)} (known: {', '.join(sorted(known))})"
            yield Fault(path, words)


def _arms(p: Profile) -> Iterator[Fault]:
    if not p.arms:
        yield Fault(("arms",), f"no arm is named (known: {', '.join(p.known_arms)})")
    yield from _unknown(("arms",), "arm", p.arms, p.known_arms)
    for lesson in p.lessons:
        yield from _unknown(("lessons", lesson.name, "arms"), "arm", lesson.arms, p.known_arms)
    for arm in p.own:
        yield from _unknown(("arms", arm.name, "trained_as"), "arm", [arm.head], p.known_arms)


def _measures(p: Profile) -> Iterator[Fault]:
    """A measure is the source of a figure of a report that not every study has."""
    shown = {source for figure in FIGURES.values() for source in figure.sources} if p.measures else set()
    known = (shown - {*ALWAYS, *SOMETIMES}) | (FROM_EMBEDDINGS & shown)
    yield from _unknown(("measures",), "measure", p.measures, known)


def _heads(p: Profile) -> Iterator[Fault]:
    """Of arms that are evaluated with another's adapter."""
    for arm in dict.fromkeys([*p.own, *map(p.arm, p.arms)]):
        if arm.trained_as is None:
            continue
        head = p.arm(arm.head)
        if not head.trains:
            way_out = f"with the adapter of {head.trained_as}; name that" if head.trained_as else "without training"
            yield Fault(("arms", arm.name, "trained_as"), f"{head.name} does not train, it is evaluated {way_out}")
        if arm.adapter and not arm.trains:
            words = f"{arm.name} is evaluated with the adapter of {head.name}, and has none of its own"
            yield Fault(("arms", arm.name, "adapter"), words)


def _trainings(p: Profile, trained: Sequence[str]) -> Iterator[Fault]:
    heads = {p.arm(name).head for name in p.arms}
    lessons = [one for one in p.lessons if heads & {*one.arms}]
    recipes: list[tuple[tuple[str, ...], LearnerConfig, Sampling, Iterable[str]]] = [
        (("training",), p.training, p.rollouts, trained),
        *((("objectives", one.name), one.training, p.rollouts, trained) for one in p.objectives),
        *((("lessons", one.name), one.training, one.rollouts, one.arms) for one in lessons),
    ]
    for path, training, rollouts, arms in recipes:
        yield from _tried((*path, "target_modules"), lambda training=training: check_layers(training.target_modules))
        yield from _tried(path, lambda training=training: loss_for(training))
        yield from _tried((*path, "advantage"), lambda training=training: try_brought(training))
        yield from _tried(path, lambda training=training, rollouts=rollouts: check_overlong(training, rollouts))
        for scaffold in (p.arm(name).scaffold for name in trained if name in arms):
            yield from _tried(path, lambda training=training, own=scaffold: second_scaffold(training, own))
        for lesson in lessons if p.seeds else ():
            theirs, ours = _adapter(lesson.training), _adapter(training)
            if {*lesson.arms} & {*arms} and (other := [name for name in ours if ours[name] != theirs[name]]):
                has = ", ".join(f"{name}={theirs[name]} and not {ours[name]}" for name in other)
                words = f"it goes on with the adapter of lesson {lesson.name}, which has {has}: make them agree"
                yield Fault((*path, other[0]), words)
    path = ("evaluation", "sampling", "kv_cache")
    yield from _tried(path, lambda: check_kept_whole(p.evaluation.sampling, "evaluation.sampling"))
    sampled = {("rollouts",): p.rollouts} | {("lessons", one.name, "rollouts"): one.rollouts for one in lessons}
    for path, rollouts in sampled.items():
        yield from _tried(path, lambda rollouts=rollouts, path=path: check_sampling(rollouts, ".".join(path)))


def _adapter(training: LearnerConfig) -> dict[str, object]:
    """What must agree where one training starts from the adapter of another."""
    return {
        "lora_rank": training.lora_rank,
        "expert_rank": training.expert_rank or training.lora_rank,
        "lora_alpha": training.lora_alpha,
        "target_modules": sorted(training.target_modules),
    }


def _pool(p: Profile) -> Iterator[Fault]:
    path, held = ("pool", "heldout_per_source"), p.pool.heldout_per_source
    if not p.pool.sources and not p.pool.synthetic:
        yield Fault(("pool",), "no problems; name sources, or give synthetic = a number")
    elif not p.pool.sources and held >= p.pool.synthetic:
        yield Fault(path, f"all {p.pool.synthetic} problems of a source would be held out; hold out fewer")
    known = [SOURCES.get(Path(name.partition("@")[0]).stem) for name in p.pool.sources]
    held_out_whole = len(known) > 1 and any(one is not None and one.eval_only for one in known)
    if not (held or held_out_whole):
        yield Fault(path, "nothing would be held out, and policies are evaluated on held-out problems; hold out some")


def _rooms(p: Profile) -> Iterator[Fault]:
    """Completions that leave no room for a prompt: the first prompt would find out, perhaps after a training."""
    room = p.hardware.max_model_len
    samplings = {("rollouts",): p.rollouts}
    samplings |= {(name, "sampling"): getattr(p, name).sampling for name in ("screening", "evaluation", "final")}
    for path, sampling in samplings.items():
        if sampling.max_tokens >= room:
            words = f"{'.'.join(path)}.max_tokens is {sampling.max_tokens} and leaves no room for a prompt in"
            yield Fault((*path, "max_tokens"), f"{words} hardware.max_model_len={room}: raise that or lower it")


def _tried(path: tuple[str, ...], check: Callable[[], object]) -> Iterator[Fault]:
    try:
        check()
    except UserError as error:
        yield Fault(path, str(error))
