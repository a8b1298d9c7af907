"""Settings that are valid on their own but not together. No file is opened."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flows.study.profile import Profile
from flows.study.reading import Fault, collected, unknown
from storage.artifacts.ref import KINDS
from storage.artifacts.schemas import ALWAYS, FROM_EMBEDDINGS, SOMETIMES
from storage.errors import UserError
from storage.reading.figures import FIGURES
from tasks.domain.grpo.credit import try_objective
from tasks.domain.grpo.learner_config import (
    LearnerConfig,
    check_kept_whole,
    check_layers,
    check_overlong,
    check_sampling,
)
from tasks.domain.grpo.losses import loss_for, refuse_unread, try_loss
from tasks.domain.grpo.rewards import try_rewards
from tasks.domain.grpo.second_scaffold import second_scaffold
from tasks.domain.policies import SERVED, Sampling
from tasks.domain.problems.sources import SOURCES
from tasks.domain.search.method import CERTAINTY
from tasks.domain.search.registry import method_named
from tasks.domain.search.selection import Likeliest
from tasks.engines.tinker_service import unserved


def faults_of(p: Profile) -> list[Fault]:
    """Return the incompatible settings of a study. If an arm is unknown, return only this mistake."""
    faults = [*_names(p)]
    if any(fault.path[0] in ("arms", "lessons") for fault in faults):
        return faults
    arms = [p.arm(name) for name in p.arms]
    trained = [arm.name for arm in arms if arm.trains]
    faults += [*_heads(p), *_problems(p), *_compared(p, trained)]
    _trainings(p, trained, faults)
    if p.encoder.name == "none":
        words = "'none' is no encoder: give its folder or name; --without embeddings leaves out what needs one"
        faults.append(Fault(("encoder", "name"), words))
    with collected(faults, "search"):
        p.search.check_served(p.final.sampling.max_tokens, arms)
        faults += _served(p)
    return faults


def unread(p: Profile, settings: Iterable[str]) -> list[Fault]:
    """Return the settings that have no effect. settings: changed fields of the study's training."""
    faults: list[Fault] = []
    for name in settings:
        with collected(faults, "training", name):
            if name == "seed":
                raise UserError("this has no effect: every arm is trained with the study's seeds; set seeds")
            refuse_unread([name], (p.training, *(one.training for one in p.objectives)))
    return faults


def _names(p: Profile) -> Iterator[Fault]:
    if not p.arms:
        yield Fault(("arms",), f"no arm is named (known: {', '.join(p.known_arms)})")
    # measures that can be chosen: the sources of the report's figures, except those that every study has
    printed = {source for figure in FIGURES.values() for source in figure.sources} if p.measures else set()
    measures = (printed - {*ALWAYS, *SOMETIMES}) | (FROM_EMBEDDINGS & printed)
    for path, what, names, known in (
        (("arms",), "arm", p.arms, p.known_arms),
        *((("lessons", one.name, "arms"), "arm", one.arms, p.known_arms) for one in p.lessons),
        *((("arms", one.name, "trained_as"), "arm", [one.head], p.known_arms) for one in p.own),
        (("hardware", "without"), "kind", p.hardware.without, sorted(KINDS)),
        (("measures",), "measure", p.measures, sorted(measures)),
    ):
        yield from unknown(path, what, names, known)


def _heads(p: Profile) -> Iterator[Fault]:
    """Yield a mistake for each arm whose head does not train, or that has an adapter in addition to its head's."""
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


def _served(p: Profile) -> Iterator[Fault]:
    """Yield a mistake for each arm and method that needs token ids or log-probs of a model that only a server has."""
    served = [name for name in p.arms if p.base_of(name).startswith(SERVED)]
    for name in served:
        if p.arm(name).trained_as is not None or p.arm(name).adapter:
            words = f'{p.base_of(name)} returns no token ids and log-probs to train on; write trained_as = "none"'
            yield Fault(("arms", name, "trained_as"), words)
    for name in p.search.methods if served else ():
        method = method_named(name)
        likeliest = isinstance(method, Likeliest) or getattr(method, "by", "") == "likelihood"
        if likeliest or method.in_steps or method.reward == CERTAINTY:
            words = f"method {name} needs token ids and log-probs, which {p.base_of(served[0])} does not return"
            yield Fault(("search", "methods"), words)


def _compared(p: Profile, trained: Sequence[str]) -> Iterator[Fault]:
    if p.objectives and not (trained and p.seeds):
        lacking = "seeds is empty" if trained else f"none of {', '.join(p.arms)} is trained"
        yield Fault(("objectives",), f"objectives can be compared only if an arm is trained, and {lacking}")
    one_answer = p.screening.group_size == 1 or not p.screening.sampling.temperature
    if one_answer and trained and p.seeds and p.train_on != "all":
        words = "give several rollouts and a temperature above 0: otherwise no problem is in the variance band"
        yield Fault(("screening",), words)


def _trainings(p: Profile, trained: Sequence[str], faults: list[Fault]) -> None:
    heads = {p.arm(name).head for name in p.arms}
    lessons = [one for one in p.lessons if heads & {*one.arms}]
    recipes: list[tuple[tuple[str, ...], LearnerConfig, Sampling, Iterable[str]]] = [
        (("training",), p.training, p.rollouts, trained),
        *((("objectives", one.name), one.training, p.rollouts, trained) for one in p.objectives),
        *((("lessons", one.name), one.training, one.rollouts, one.arms) for one in lessons),
    ]
    for path, training, rollouts, arms in recipes:
        for name, check in {"advantage": try_objective, "loss": try_loss, "rewards": try_rewards}.items():
            with collected(faults, *path, name):
                check(training)
        with collected(faults, *path, "target_modules"):
            check_layers(training.target_modules)
        with collected(faults, *path):
            loss_for(training)
            check_overlong(training, rollouts)
            for scaffold in (p.arm(name).scaffold for name in trained if name in arms):
                second_scaffold(training, scaffold)
        if p.hardware.engine == "tinker" and training.steps and p.seeds and {*trained} & {*arms}:
            sampled = (*path, "rollouts") if path[0] == "lessons" else ("rollouts",)
            for name, words in unserved(training, rollouts.temperature).items():
                faults.append(Fault((*(sampled if name == "temperature" else path), name), words))
        for lesson in lessons if p.seeds else ():
            theirs, ours = _adapter(lesson.training), _adapter(training)
            if {*lesson.arms} & {*arms} and (other := [name for name in ours if ours[name] != theirs[name]]):
                has = ", ".join(f"{name}={theirs[name]} and not {ours[name]}" for name in other)
                words = (
                    f"this training continues with the adapter of lesson {lesson.name}, which has {has}; set them equal"
                )
                faults.append(Fault((*path, other[0]), words))
    with collected(faults, "evaluation", "sampling", "kv_cache"):
        check_kept_whole(p.evaluation.sampling, "evaluation.sampling")
    for path, rollouts in {
        ("rollouts",): p.rollouts,
        **{("lessons", x.name, "rollouts"): x.rollouts for x in lessons},
    }.items():
        with collected(faults, *path):
            check_sampling(rollouts, ".".join(path))


def _adapter(training: LearnerConfig) -> dict[str, object]:
    """Return the settings that must agree if one training starts from another's adapter."""
    return {
        "lora_rank": training.lora_rank,
        "expert_rank": training.expert_rank or training.lora_rank,
        "lora_alpha": training.lora_alpha,
        "target_modules": sorted(training.target_modules),
    }


def _problems(p: Profile) -> Iterator[Fault]:
    pool, held = p.pool, p.pool.heldout_per_source
    known = [SOURCES.get(Path(name.partition("@")[0]).stem) for name in pool.sources]
    if not held and not (len(known) > 1 and any(one is not None and one.eval_only for one in known)):
        words = "nothing would be held out, and policies are evaluated on held-out problems; hold out some"
        yield Fault(("pool", "heldout_per_source"), words)
    if not pool.sources and not pool.synthetic:
        yield Fault(("pool",), "no problems; name sources, or give synthetic = a number")
    elif held == "all" and p.seeds and p.training.steps and p.heads(p.arms):
        words = "every problem would be held out, and none is left to train on; hold out fewer"
        yield Fault(("pool", "heldout_per_source"), words)
