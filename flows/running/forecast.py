"""A plan with its price: costs by stage, the difference that the study could detect, and the budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from flows.running.costs import FILL, Cost, Estimator, total
from flows.running.fit import Machine, error_as_line, memory_lines, problems_before_checks, prompt_lines
from flows.running.plan import Planned, plan, sampled_here, why_not
from flows.study.machine import gpus_line
from flows.study.models import DEMO_PROMPTS, SHIPPED
from flows.study.objectives import alike
from flows.study.prices import host_of, team_prices, unpriced
from flows.study.profile import Profile
from flows.study.resolve import Study
from storage.artifacts.schemas import ALWAYS, Splits
from storage.artifacts.store import Store
from storage.reading.figures import FIGURES
from storage.records.runs import Amounts, run_id
from storage.records.spending import PRICES, Journal
from tasks.domain.budget import Budget, Prices, plainly
from tasks.domain.problems.problems import answer_type
from tasks.domain.problems.sources import SOURCES
from tasks.domain.scaffolds import MATH, SCAFFOLDS
from tasks.domain.statistics.power import Design, detectable
from tasks.engines.hardware import num_gpus
from tasks.engines.sampling.prompts import opens_trace

#: Number of golds that are tested for prose, and the share of prose that is worth a warning.
GOLDS, PROSE = 500, 0.1
#: Columns of the plan's table.
COLUMNS = ("rollouts", "reused", "tokens", "GPU-h", "US$")
NONE = "–"
LENGTHS = {
    "measured": "measured by this store",
    "guessed": "this store has measured another arm, model or max_tokens",
    "assumed": f"this store has measured none of an arm's ({100 * FILL[1]:.0f} % of max_tokens assumed)",
}
IN_ALL = ("rollouts", "rollouts reused", "tokens", "GPU-hours", "US$")
#: Assumed standard deviations of accuracy between seeds. The first was measured here on a 1.5B model. The second is the
#: smallest in the literature, which has 5 to 15 points.
SEED_SDS = (0.02, 0.05)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a study and the difference that it can detect.

    - called: the study's name. costs: one per planned stage. spent: amounts of the run's attempts so far.
    - sees: the difference that the study can detect. problems: how many are used, and why.
    - warnings: what to know before running. notes: further remarks.
    - on_cpu: hours are those of this machine's CPU.
    """

    called: str
    planned: list[Planned]
    costs: list[Cost]
    limits: Mapping[str, float]
    spent: Amounts
    sees: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    runs: str = ""
    problems: str = ""
    on_cpu: bool = False

    @classmethod
    def of(cls, study: Study, store: Store, budget: Budget, machine: Machine | None = None) -> Self:
        """Compute the forecast, and make nothing. Raise UserError for unreadable prices. machine: for the run, if
        known."""
        planned = plan(study, store)
        prices = team_prices(store.root).of(study.profile.name, study.profile.hardware, study.on_server)
        estimator = Estimator(study, store, planned, prices)
        evaluated = (p.step.arguments for p in planned if p.step.arguments.get("split") == "heldout")
        heldout = next((given for given in evaluated if isinstance(given["splits"], Splits)), None)
        samplings = [one.sampling for one in sampled_here(planned)]
        unknown_price = no_price(prices, study.profile, store, budget)
        warnings = [
            *base_notes(study),
            not_measured(study.profile, planned),
            f"the run would pause before training: {reason}" if (reason := why_not(planned, store)) else "",
            *misread_traces(study),
            *unknown_prompts(study),
            prose_golds(study, planned),
            *alike(study.profile),
            gpus_line(study.profile.hardware, num_gpus()),
            *(error_as_line(memory_lines(study, machine, samplings), "this machine") if machine else ()),
            *error_as_line(prompt_lines(study, store, planned), "the run"),
            unknown_price,
        ]
        return cls(
            called=study.profile.called,
            planned=planned,
            costs=[estimator.cost(p) if p.made_here else Cost() for p in planned],
            limits={name: limit for name, limit in budget.limits().items() if not (unknown_price and name == "usd")},
            spent=Journal(store.root, run_id(study.profile.called, planned[-1].step.ref)).spent(),
            sees=detectable_gain(study.profile, estimator.problem_set(heldout, "heldout").number) if heldout else "",
            warnings=tuple(filter(None, warnings)),
            notes=tuple(filter(None, [without(study)])),
            runs=study.in_numbers,
            problems=problems_line(study, estimator, heldout) if heldout else "",
            on_cpu=prices.device == "cpu" and study.profile.hardware.device != "cuda",
        )

    @property
    def whole(self) -> Cost:
        return total(self.costs)

    def sentences(self) -> Iterator[str]:
        """Yield problems, stages, cost, detectable difference, notes, and whether the budget is enough."""
        yield from self.head()
        yield from self.notes
        yield from self._budgets()

    def head(self) -> Iterator[str]:
        """Yield the sentences without notes and budget. Warnings come last."""
        yield from filter(None, (self.runs, self.problems))
        todo, left = sum(p.made_here for p in self.planned), sum(p.left for p in self.planned)
        report = ", the report too" if self.planned[-1].left else ""
        elsewhere = f", {left} are left for another machine{report}" if left else ""
        yield f"{self.called}: {todo} of {len(self.planned)} stages would be made{elsewhere}"
        whole, hours = self.whole, self.whole.gpu_hours
        in_all = [f"{n.strip()} {name}" for n, name in zip(amounts(whole), IN_ALL, strict=True) if n != NONE]
        if self.on_cpu:
            in_all = [duration_text(hours) if "GPU-hours" in each else each for each in in_all]
        yield f"in all {', '.join(in_all) or 'nothing that costs'}"
        if whole.basis and whole.least < whole.most:
            low, high = (tokens / whole.tokens for tokens in (whole.least, whole.most))
            ranges = [f"{short(whole.least).strip()} to {short(whole.most).strip()} tokens"]
            each = f"{duration_text(low * hours)} to {duration_text(high * hours)}"
            ranges += [each if self.on_cpu else f"{low * hours:.2g} to {high * hours:.2g} GPU-hours"] if hours else []
            ranges += [f"US$ {low * whole.usd:,.2f} to {high * whole.usd:,.2f}"] if whole.usd else []
            yield f"{', '.join(ranges)}, as long as completions turn out to be: {LENGTHS[whole.basis]}"
        if self.sees:
            yield self.sees
        yield from self.warnings

    def _budgets(self) -> Iterator[str]:
        for name, limit in self.limits.items():
            need, spent = getattr(self.whole, name), getattr(self.spent, name)
            left, most = max(limit - spent, 0), need * (self.whole.most / self.whole.tokens if self.whole.tokens else 1)
            verdict = (
                "holds"
                if most <= left
                else "holds if completions are not longer than on average"
                if need <= left
                else "does not hold: the run would pause"
            )
            before = f" beside {plainly(spent, 3)} that its run has spent" if spent else ""
            yield f"budget {name}={limit:.12g} {verdict} (about {plainly(need, 3)}{before})"

    def markdown(self) -> str:
        """Return a page: the sentences, and then one line per stage."""
        lines = [f"- {sentence}" for sentence in self.sentences()]
        table = [f"| | stage | {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * len(COLUMNS)}"]
        for p, cost in zip(self.planned, self.costs, strict=True):
            how = "reused" if p.reused else "left" if p.left else "make"
            table.append(f"| {how} | {p.step.title} | {' | '.join(amounts(cost))} |")
        return "\n".join([*lines, "", *table])

    def as_json(self) -> dict[str, object]:
        rows = [
            {"title": p.step.title, "ref": str(p.step.ref), "reused": p.reused, "left": p.left, **c.model_dump()}
            for p, c in zip(self.planned, self.costs, strict=True)
        ]
        return {
            "profile": self.called,
            "stages": rows,
            "total": self.whole.model_dump(),
            "budget": dict(self.limits),
            "spent": self.spent.model_dump(),
            "sees": self.sees,
            "notes": [*self.warnings, *self.notes],
        }


def amounts(cost: Cost) -> list[str]:
    """Return the cells of a stage in the plan, with a dash where the stage needs nothing. `reused`: rollouts that are
    in the ledger, or that an earlier stage of the plan samples."""
    numbers = (
        (cost.rollouts, f"{cost.rollouts:,}"),
        (cost.rollouts_reused, f"{cost.rollouts_reused:,}"),
        (cost.tokens, short(cost.tokens)),
        (cost.gpu_hours, f"{cost.gpu_hours:.3g}"),
        (cost.usd, f"{cost.usd:,.2f}"),
    )
    return [text if value else NONE for value, text in numbers]


def short(value: float) -> str:
    """
    >>> short(1_359_488), short(950)
    ('1.36 M', '950 ')
    """
    for unit in ("", "k", "M", "G"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} T"


def duration_text(hours: float) -> str:
    """
    >>> duration_text(0.148), duration_text(2.34), duration_text(0.001)
    ('9 minutes', '2.3 hours', '1 minute')
    """
    minutes = max(1, round(60 * hours))
    return f"{hours:.1f} hours" if minutes > 99 else f"{minutes} minute{'s' * (minutes > 1)}"


def detectable_gain(profile: Profile, problems: int) -> str:
    """Return the difference between two arms' gains that 80 % of such studies would detect; empty if fewer than two
    arms are trained. problems: number of held-out problems. With several seeds, use the assumed standard deviations of
    accuracy between seeds. A single seed gives no information on other seeds."""
    trained, seeds = [arm for arm in profile.arms if profile.heads([arm])], len(profile.seeds)
    if len(trained) < 2 or not profile.training.steps or not seeds or problems < 2:
        return ""
    design = Design(num_problems=problems, group_size=profile.final.group_size, question="gains", seeds=seeds)
    least = {sd: detectable(replace(design, seed_sd=sd)) for sd in (SEED_SDS if seeds > 1 else (0.0,))}
    words = {sd: "none" if size is None else f"{100 * size:.1f} pp" for sd, size in least.items()}
    about = f"{problems} held-out problems × {profile.final.group_size} rollouts, {seeds} seed{'s' * (seeds > 1)}"
    if set(words.values()) == {"none"}:
        return f"this study cannot detect any difference of gains ({about})"
    if seeds == 1:
        return f"this study can see a difference of gains of {words[0.0]} between these adapters ({about})"
    first, second = (f"{words[sd]} if seeds differ by {100 * sd:g} pp" for sd in SEED_SDS)
    assumed = "an assumed standard deviation"
    return f"this study can see a difference of gains of {first}, {second} ({about}, {assumed})"


def problems_line(study: Study, estimator: Estimator, heldout: Mapping[str, Any]) -> str:
    """Return how many problems are used and held out, and which setting limits them. heldout: of a sampling."""
    p = study.profile
    used, held = (estimator.problem_set(heldout, split).number for split in (None, "heldout"))
    build, why = estimator.planned[heldout["pool"]].step.arguments, ""
    if p.pool.limit and "policy" in build:
        origin = "" if any("pool.limit" in change for change in study.changes) else f", from {p.name}"
        unlimited = {**build, "policy": replace(build["policy"], limit=None)}
        every = len(problems_before_checks(unlimited, study.places))
        why = f" of {every:,} (pool.limit = {p.pool.limit}{origin})" if every > used else ""
    train = f"{used - held:,} left to train on" if p.seeds and p.training.steps else "none trained on"
    seeds = f"; {len(p.seeds)} training seed{'s' * (len(p.seeds) > 1)}" if p.seeds else ""
    return f"problems: {used:,}{why}, {held:,} held out, {train}{seeds}"


def not_measured(profile: Profile, planned: Sequence[Planned]) -> str:
    """Return the chosen measures that this study cannot make, each with the reason."""
    made = planned[-1].step.arguments["tables"].standard
    lacking = [name for name in profile.measures if name not in made and name not in ALWAYS]
    why = {figure.sources[0]: figure.empty for figure in reversed(FIGURES.values())}
    return "; ".join(f"measure {name} is chosen and not made: {why[name].rstrip('.')}" for name in lacking)


def no_price(prices: Prices, profile: Profile, store: Store, budget: Budget) -> str:
    """Return a warning if a budget in dollars meets a device without a price, or if prices of a Tinker service are
    missing; empty if nothing is missing."""
    if not profile.hardware.remote and (why := prices.unlimited(budget, prices.device)):
        return f"{store.root / PRICES}: {why}"
    elsewhere = profile.hardware.engine == "tinker" and host_of(profile.hardware) not in ("127.0.0.1", "localhost")
    lacking = unpriced(prices, profile.hardware) if elsewhere else ""
    return lacking and f"no US$ of the service: {lacking} in {store.root / PRICES}"


def base_notes(study: Study) -> list[str]:
    """Return notes on the arms' base models, if there are several, and on the arms that are only evaluated."""
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
    """Return the arms whose completions could never be valid, because prompt and completion both have the opening tag
    of the trace, or neither has it."""
    found = []
    for arm in map(study.profile.arm, study.profile.arms):
        model, scaffold = study.models[arm.name], arm.scaffold
        folder = study.places.get(model.sha256)
        opens = None if folder is None else opens_trace(folder, scaffold)
        if opens is not None and opens != scaffold.trace_opened:
            writes, say = ("writes", "true") if opens else ("does not write", "false")
            found.append(
                f"arm {arm.name}: the chat template of {model.name} {writes} <{scaffold.trace_tag}> at the end of the"
                f" prompt, so no completion will have valid tags: set trace_opened = {say} in its scaffold"
            )
    return found


def prose_golds(study: Study, planned: Sequence[Planned]) -> str:
    """Return a warning if many golds are words while an arm's answers are read as mathematics."""
    build = next((p.step.arguments for p in planned if p.step.ref.kind == "pool" and p.made_here), None)
    if build is None or MATH not in study.profile.answer_kinds:
        return ""
    golds = [row["gold"] for row in problems_before_checks(build, study.places)[:GOLDS] if row["source_id"]]
    prose = [gold for gold in golds if answer_type(gold) == "text"]
    if len(prose) <= PROSE * len(golds):
        return ""
    return (
        f"{len(prose)} of {len(golds)} reference answers are words, such as {prose[0]!r:.60}, and answers are read as"
        ' mathematics: set answer_kind = "exact_text" in the scaffolds if they are to be compared word by word'
    )


def unknown_prompts(study: Study) -> list[str]:
    """Return a warning for arms with the demo's model whose prompt was not in its pretraining."""
    arms = [study.profile.arm(name) for name in study.profile.arms]
    known = {SCAFFOLDS[name].prompt_text("") for name in DEMO_PROMPTS}
    demo = [arm for arm in arms if study.places.get(study.models[arm.name].sha256) == SHIPPED["demo"]]
    others = [arm.name for arm in demo if arm.scaffold.prompt_text("") not in known]
    words = "the demo's model was pretrained on the built-in prompts alone and cannot answer others; set model"
    return [f"{', '.join(others)}: {words}"] if others else []


def without(study: Study) -> str:
    """Return the inputs that are missing on this machine, as a list; empty if none is."""
    if not study.absent:
        return ""
    sources = [s for inputs in (*study.pools.values(), *study.benchmarks.values()) for s in inputs.sources]
    unknown = sorted({s.name for s in sources if s.sha256 not in study.places and s.name not in SOURCES})
    return (
        f"not on this machine: {', '.join(study.absent)}; artifacts that need these inputs are planned as"
        " missing, and problem sets with their published sizes"
        + (f", except {', '.join(unknown)}, whose size is unknown" if unknown else "")
    )
