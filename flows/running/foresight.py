"""What a planned study could see, before anything is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flows.running.costs import Estimator
from flows.running.plan import Planned
from flows.study.profile import Profile
from flows.study.resolve import Study
from storage.artifacts.kinds import Splits
from storage.artifacts.kinds.report import ALWAYS
from storage.artifacts.store import Store
from storage.reading.figures import FIGURES
from tasks.domain.grpo.losses import loss_for
from tasks.domain.prices import Prices
from tasks.domain.problems.sources import SOURCES
from tasks.domain.statistics.power import Design, detectable
from tasks.engines.sampling.prompts import opens_trace
from tasks.engines.sampling.same_policy import TOKENS

#: Assumed standard deviations of a seed's accuracy: about as measured here on a 1.5B model, and the least of the 5 to
#: 15 pp in the literature.
SEED_SDS = (0.02, 0.05)
#: How many times longer rollouts may be than the constant that a loss divides by before a plan says so.
SMALL_DIVISOR = 4


@dataclass(frozen=True, slots=True)
class Foresight:
    """The difference of two arms' gains (shares) that 80 % of such studies would find.

    detectable: by the assumed standard deviation of a seed's accuracy; by 0 for one seed, which says nothing of others.
    None if no difference is so large.
    """

    problems: int
    group_size: int
    seeds: int
    detectable: tuple[tuple[float, float | None], ...]

    def sentence(self) -> str:
        """
        >>> Foresight(100, 8, 1, ((0.0, 0.0873),)).sentence().split(" (")[0]
        'this study can see a difference of gains of 8.7 pp between these adapters'
        >>> Foresight(500, 8, 6, ((0.02, 0.0452), (0.05, None))).sentence().split(" (")[0]
        'this study can see a difference of gains of 4.5 pp if seeds differ by 2 pp, no size if by 5 pp'
        """
        if self.seeds == 1:
            sizes = f"{_points(self.detectable[0][1])} between these adapters"
        else:
            each = (f"{_points(size)} if by {100 * sd:g} pp" for sd, size in self.detectable)
            sizes = ", ".join(each).replace("if by", "if seeds differ by", 1)
        seeds = f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"
        size = f"{self.problems} held-out problems × {self.group_size} rollouts, {seeds}"
        assumed = ", an assumed standard deviation" if self.seeds > 1 else ""
        return f"this study can see a difference of gains of {sizes} ({size}{assumed})"


def _points(share: float | None) -> str:
    return "no size" if share is None else f"{100 * share:.1f} pp"


def foresight(study: Study, store: Store, planned: Sequence[Planned], prices: Prices) -> Foresight | None:
    """Of olympiad-like difficulty, in four of five such studies. Null where nothing is trained or held out."""
    p, estimator = study.profile, Estimator(study, store, {one.step.ref: one for one in planned}, prices)
    held = [one.step.arguments for one in planned if one.step.arguments.get("split") == "heldout"]
    given = next((given for given in held if isinstance(given["splits"], Splits)), None)
    trained = [arm for arm in p.arms if p.heads([arm])]
    if given is None or len(trained) < 2 or not p.training.steps or not p.seeds:
        return None
    problems, seeds = estimator.asked(given, "heldout").number, len(p.seeds)
    if problems < 2:
        return None
    design = Design(num_problems=problems, group_size=p.final.group_size, question="gains", seeds=seeds)
    sds = SEED_SDS if seeds > 1 else (0.0,)
    sizes = tuple((sd, detectable(replace(design, seed_sd=sd))) for sd in sds)
    return Foresight(problems, p.final.group_size, seeds, sizes)


def not_measured(profile: Profile, planned: Sequence[Planned]) -> str:
    """Measures that were chosen and that this study cannot make, each with its reason; empty if that is none."""
    made = planned[-1].step.arguments["tables"].standard
    lacking = [name for name in profile.measures if name not in made and name not in ALWAYS]
    why = {figure.sources[0]: figure.empty for figure in reversed(FIGURES.values())}
    return "; ".join(f"measure {name} is chosen and not made: {why[name].rstrip('.')}" for name in lacking)


def stands_on(study: Study) -> list[str]:
    """What arms stand on where that is not one base model; which of them are ceilings."""
    p, found = study.profile, []
    if len({study.models[arm].sha256 for arm in p.arms}) > 1:
        found.append(f"{study.model_names}: arms on different bases do not compare scaffolds alone")
    elif study.adapters:
        found.append(study.model_names)
    if ceilings := [arm for arm in p.arms if not p.heads([arm])]:
        found.append(
            f"evaluated as {'it is' if len(ceilings) == 1 else 'they are'}, never trained: {', '.join(ceilings)}"
        )
    return found


def misread_traces(study: Study) -> list[str]:
    """Arms whose scaffold is mistaken about who writes the opening tag of the trace: no completion is in form."""
    found = []
    for arm in map(study.profile.arm, study.profile.arms):
        model, scaffold = study.models[arm.name], arm.scaffold
        folder = study.places.get(model.sha256)
        opens = None if folder is None else opens_trace(folder, scaffold)
        if opens is not None and opens != scaffold.trace_opened:
            writes, say = ("writes", "true") if opens else ("does not write", "false")
            found.append(
                f"arm {arm.name}: the chat template of {model.name} {writes} <{scaffold.trace_tag}> at the end of the"
                f" prompt, so no completion will be in form: give it a scaffold with trace_opened = {say}"
            )
    return found


def small_divisors(profile: Profile) -> list[str]:
    """Trainings whose loss divides by a constant that is far below the length that their rollouts may have."""
    drawn = [(one.training, profile.rollouts) for one in profile.objectives]
    drawn += [(one.training, one.rollouts) for one in profile.lessons]
    found = []
    for learner, rollouts in [(profile.training, profile.rollouts), *drawn]:
        times = rollouts.max_tokens / (learner.max_tokens or rollouts.max_tokens)
        if loss_for(learner).reduction == "constant" and times > SMALL_DIVISOR:
            found.append(
                f"loss {learner.loss} divides by training.max_tokens={learner.max_tokens}, and rollouts may have"
                f" {rollouts.max_tokens}: gradients are {times:.0f} times as large as with the longest completion there"
            )
    return list(dict.fromkeys(found))


def weight_checks(planned: Sequence[Planned]) -> str:
    """The cost of checking that engines sample from the weights they were given; empty where nothing is sampled."""
    made = [one.step for one in planned if not one.reused]
    steps = sum(one.arguments["learner"].steps for one in made if "learner" in one.arguments)
    stages = sum("policy" in one.arguments and "sampling" in one.arguments for one in made)
    if not steps + stages:
        return ""
    loaded = f"; for {stages} of them it is loaded anew" if stages else ""
    return (
        f"the learner scores up to {TOKENS} sampled tokens after each of {steps + stages} changes of weights, in one"
        f" small forward pass each{loaded}"
    )


def without(study: Study) -> str:
    """What this plan does without; empty if that is nothing."""
    if not study.absent:
        return ""
    sources = [s for inputs in (*study.pools.values(), *study.benchmarks.values()) for s in inputs.sources]
    unknown = sorted({s.name for s in sources if s.sha256 not in study.places and s.name not in SOURCES})
    return (
        f"not on this machine: {', '.join(study.absent)}; what hangs on that has no name by content yet and is"
        " planned as to be made, sets of problems at their published sizes"
        + (f", but for {', '.join(unknown)}, of which nobody knows how many they are" if unknown else "")
    )
