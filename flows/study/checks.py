"""What of a study does not go together, though each of its fields is what it may be. No file is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from flows.study.hub import id_of, on_hub
from flows.study.reading import NAME, UNNAMED, Fault, twice
from flows.study.shape import Profile
from storage.artifacts.kinds.report import ALWAYS, FROM_EMBEDDINGS, SOMETIMES
from storage.artifacts.ref import KINDS
from storage.errors import UserError, did_you_mean
from storage.reading.figures import FIGURES
from tasks.domain.grpo.credit import try_brought
from tasks.domain.grpo.learner_config import ALL_LINEAR, LearnerConfig, check_kept_whole, check_overlong, check_sampling
from tasks.domain.grpo.losses import loss_for, refuse_unread
from tasks.domain.grpo.second_scaffold import second_scaffold
from tasks.domain.policies import Sampling
from tasks.domain.problems.sources import SOURCES
from tasks.domain.statistics.windows import window_named
from tasks.engines.hardware import ENGINES
from tasks.engines.problems.hub import asked_of_hub

#: Policies of one training, and of all of them, that are evaluated: a plan lists each.
MOST_EVALUATED, MOST_IN_ALL = 1000, 5000


def faults_of(p: Profile) -> Iterator[Fault]:
    yield from unknown_names(p)
    yield from _heads(p)
    yield from _trainings(p)
    if p.objectives and p.arms and not any(arm not in p.known_arms or p.known_arms[arm].trains for arm in p.arms):
        said = f"objectives are compared where an arm is trained, and none of {', '.join(p.arms)} is trained; name one"
        yield Fault(("objectives",), said)
    if p.objectives and not p.seeds:
        yield Fault(("seeds",), "objectives are compared where something is trained, and seeds is empty; give some")
    if not p.pool.sources and not p.pool.synthetic:
        yield Fault(("pool",), "pool: no problems; name sources, or give synthetic = a number")
    elif not p.pool.sources and p.pool.heldout_per_source >= p.pool.synthetic:
        said = f"all {p.pool.synthetic} problems of a source would be held out; hold out fewer"
        yield Fault(("pool", "heldout_per_source"), said)
    if not (p.pool.heldout_per_source or _held_out_whole(p.pool.sources)):
        said = "nothing would be held out, and every policy is evaluated on what is; hold out some"
        yield Fault(("pool", "heldout_per_source"), said)
    if not p.passk.ks:
        yield Fault(("passk", "ks"), "passk.ks is empty; name at least one k, such as 1")
    yield from _lengths(p)
    known = p.known_arms
    arms = [known[arm] for arm in p.arms if arm in known]
    yield from _said(("search",), lambda: p.search.refuse_impossible(p.final.sampling.max_tokens, arms))


def unknown_names(p: Profile, *, arms: bool = True) -> Iterator[Fault]:
    """What a field says that nothing has, or says twice, whatever stands in the others. arms: look these up too."""
    if arms:
        yield from _arms(p)
    several: dict[tuple[str, ...], Sequence[object]] = {
        ("arms",): p.arms,
        ("seeds",): p.seeds,
        ("passk", "ks"): p.passk.ks,
        ("measures",): p.measures,
    }
    several |= {("pool", "sources"): p.pool.sources, ("training", "target_modules"): p.training.target_modules}
    several |= {("benchmarks", one.name, "sources"): one.sources for one in p.benchmarks}
    for path, given in several.items():
        if again := ", ".join(map(str, twice(given))):
            yield Fault(path, f"{path[-1]}: {again} stands there more than once, and would be counted so")
    yield from _measures(p)
    for kind in p.hardware.without:
        if kind not in KINDS:
            known = ", ".join(sorted(KINDS))
            said = f"hardware.without: no kind '{kind}'{did_you_mean(kind, KINDS)} (known: {known})"
            yield Fault(("hardware", "without"), said)
    if (engine := p.hardware.engine) not in ENGINES:
        said = f"unknown engine '{engine}'{did_you_mean(engine, ENGINES)} (known: {', '.join(ENGINES)})"
        yield Fault(("hardware", "engine"), said)
    yield from _ids(p)
    yield from _said(("encoder", "windows"), lambda: [window_named(name) for name in p.encoder.windows])


def _measures(p: Profile) -> Iterator[Fault]:
    """A measure is what a figure of a report shows that no study always has."""
    shown = {source for figure in FIGURES.values() for source in figure.sources} if p.measures else set()
    known = (shown - {*ALWAYS, *SOMETIMES}) | (FROM_EMBEDDINGS & shown)
    for name in p.measures:
        if name not in known:
            said = f"unknown measure {name!r}{did_you_mean(name, known)} (known: {', '.join(sorted(known))})"
            yield Fault(("measures",), said)


def _held_out_whole(sources: Sequence[str]) -> bool:
    """Whether one of several is there for evaluation only."""
    known = [SOURCES.get(Path(name.partition("@")[0]).stem) for name in sources]
    return len(sources) > 1 and any(one is not None and one.eval_only for one in known)


def unread(p: Profile, settings: Iterable[str]) -> Iterator[Fault]:
    """settings: fields of the study's training that somebody asked for."""
    trainings = (p.training, *(one.training for one in p.objectives))
    for setting in settings:
        if setting == "seed":
            said = "training.seed is of no effect, for every arm is trained once for each of the study's; set seeds"
            yield Fault(("training", setting), said)
        yield from _said(("training", setting), lambda setting=setting: refuse_unread([setting], trainings))


def _arms(p: Profile) -> Iterator[Fault]:
    known = p.known_arms
    if not p.arms:
        yield Fault(("arms",), f"no arm is named (known: {', '.join(known)})")
    named = [(("arms",), arm) for arm in p.arms]
    named += [(("lessons", lesson.name, "arms"), arm) for lesson in p.lessons for arm in lesson.arms]
    named += [(("arms", arm.name, "trained_as"), arm.head) for arm in p.own]
    for path, arm in named:
        if arm not in known:
            yield Fault(path, f"unknown arm '{arm}'{did_you_mean(arm, known)} (known: {', '.join(known)})")


def _heads(p: Profile) -> Iterator[Fault]:
    """Of arms that are evaluated with another's adapter."""
    known = p.known_arms
    for arm in dict.fromkeys([*p.own, *(known[name] for name in p.arms if name in known)]):
        head = known.get(arm.head)
        if arm.trained_as is None or head is None:
            continue
        if not head.trains:
            way_out = (
                f"it is evaluated as {head.trained_as}; name that" if head.trained_as else "it is evaluated as it is"
            )
            yield Fault(("arms", arm.name, "trained_as"), f"{head.name} does not train, {way_out}")
        if arm.adapter and not arm.trains:
            said = f"{arm.name} is evaluated with the adapter of {head.name}, and has none of its own"
            yield Fault(("arms", arm.name, "adapter"), said)


def _trainings(p: Profile) -> Iterator[Fault]:
    arms = {name: p.known_arms[name] for name in p.arms if name in p.known_arms and p.known_arms[name].trains}
    trained: list[tuple[tuple[str, ...], LearnerConfig, Sampling, Iterable[str]]] = [
        (("training",), p.training, p.rollouts, arms),
        *((("objectives", one.name), one.training, p.rollouts, arms) for one in p.objectives),
        *((("lessons", o.name), o.training, o.rollouts, {*o.arms}) for o in p.lessons if {*o.arms} & {*p.arms}),
    ]
    for path, training, rollouts, of in trained:
        for name in training.target_modules:
            if name not in ALL_LINEAR:
                hint = did_you_mean(name, ALL_LINEAR)
                said = f"no linear layer '{name}'{hint} (known: {', '.join(ALL_LINEAR)})"
                yield Fault((*path, "target_modules"), said)
        yield from _said(path, lambda training=training: loss_for(training))
        yield from _said((*path, "advantage"), lambda training=training: try_brought(training))
        yield from _said(path, lambda training=training, rollouts=rollouts: check_overlong(training, rollouts))
        for own in (arm.scaffold for name, arm in arms.items() if name in of):
            yield from _said(path, lambda training=training, own=own: second_scaffold(training, own))
    path = ("evaluation", "sampling", "kv_cache")
    yield from _said(path, lambda: check_kept_whole(p.evaluation.sampling, "evaluation.sampling"))
    heads = {p.known_arms[name].head for name in p.arms if name in p.known_arms}
    sampled = {("rollouts",): p.rollouts} | {("lessons", o.name): o.rollouts for o in p.lessons if heads & {*o.arms}}
    for path, rollouts in sampled.items():
        name = ".".join(path if path == ("rollouts",) else (*path, "rollouts"))
        yield from _said(path, lambda rollouts=rollouts, name=name: check_sampling(rollouts, name))
    if arms and p.seeds and p.train_on != "all":
        if p.screening.group_size == 1:
            said = "screening.group_size is 1, and one rollout is never right and wrong: no problem has a gradient"
            yield Fault(("screening", "group_size"), said)
        elif not p.screening.sampling.temperature:
            said = "screening.sampling.temperature is 0, and all rollouts of a problem are one: none has a gradient"
            yield Fault(("screening", "sampling", "temperature"), said)
    yield from _evaluations(p, len(arms))


def _evaluations(p: Profile, trained: int) -> Iterator[Fault]:
    """trained: arms."""
    number = len(range(0, p.training.steps, p.training.eval_every)) + 1
    if number > MOST_EVALUATED:
        yield Fault(
            ("training", "eval_every"),
            f"{p.training.steps} steps evaluated every {p.training.eval_every} are {number} evaluations a seed, above"
            f" {MOST_EVALUATED}: raise training.eval_every or lower training.steps",
        )
    elif (in_all := number * trained * len(p.seeds)) > MOST_IN_ALL:
        said = f"{len(p.seeds)} seeds of {trained} arms are {in_all} evaluations, above {MOST_IN_ALL}: name fewer seeds"
        yield Fault(("seeds",), f"{said}, or raise training.eval_every")


def _ids(p: Profile) -> Iterator[Fault]:
    """Models, adapters and problems by names that cannot be one."""
    named = {("model",): p.model, ("encoder", "name"): p.encoder.name}
    for path, name in named.items():
        if not name.strip():
            yield Fault(path, f"{'.'.join(path)} is empty; name a folder, or OWNER/NAME@COMMIT on the hub")
    own = {("arms", arm.name, "model"): arm.model for arm in p.own}
    own |= {("arms", arm.name, "adapter"): arm.adapter for arm in p.own}
    for path in (path for path, name in own.items() if name.isspace()):
        yield Fault(path, f"{'.'.join(path)} is blank; name a folder, or OWNER/NAME@COMMIT on the hub")
    named |= own
    for several, names in (("benchmarks", p.benchmarks), ("lessons", p.lessons)):
        for name in (one.name for one in names if not NAME.fullmatch(one.name)):
            yield Fault((several, name), f"{name[:80]!r} {UNNAMED}")
    for path, name in named.items():
        if on_hub(name):
            yield from _said(path, lambda name=name: id_of(name))
    sources = {("pool", "sources"): p.pool.sources}
    sources |= {("benchmarks", one.name, "sources"): one.sources for one in p.benchmarks}
    for path, names in sources.items():
        for name in names:
            if on_hub(str(name)):
                yield from _said(path, lambda name=name: asked_of_hub(str(name)))


def _lengths(p: Profile) -> Iterator[Fault]:
    """Completions that leave no room for a prompt: found out by the first prompt, perhaps after a training."""
    room = p.hardware.max_model_len
    caps = {f"{name}.sampling": getattr(p, name).sampling for name in ("screening", "evaluation", "final")}
    caps |= {"rollouts": p.rollouts}
    for name, sampling in caps.items():
        if sampling.max_tokens >= room:
            said = f"{name}.max_tokens is {sampling.max_tokens} and leaves no room for a prompt in"
            yield Fault(
                (*name.split("."), "max_tokens"), f"{said} hardware.max_model_len={room}: raise that or lower it"
            )


def _said(path: tuple[str, ...], check: Callable[[], object]) -> Iterator[Fault]:
    try:
        check()
    except UserError as error:
        yield Fault(path, str(error))
