"""A plan with its price: what each stage would take, the sum, what the study could see, whether a budget holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from flows.running.costs import FILL, Cost, costs, total
from flows.running.foresight import (
    Foresight,
    foresight,
    misread_traces,
    not_measured,
    small_divisors,
    stands_on,
    weight_checks,
    without,
)
from flows.running.longest_prompts import check_fit, longest_prompts, summary
from flows.running.plan import Planned, plan, why_not
from flows.running.room import told as no_room
from flows.study.layout import told
from flows.study.prices import team_prices
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.runs import Amounts, run_id
from storage.records.spending import Journal
from tasks.domain.budget import Budget
from tasks.domain.prices import plainly
from tasks.engines.hardware import num_gpus

#: What a stage's amounts are of, for a table; its last is told in bytes.
UNITS = ("rollouts", "kept", "tokens", "GPU-h", "US$", "disk")
NONE = "–"
LENGTHS = {
    "measured": "measured by this store",
    "guessed": "this store has measured another arm, model or max_tokens",
    "assumed": f"this store has measured none of an arm's ({100 * FILL[1]:.0f} % of max_tokens assumed)",
}
IN_ALL = ("rollouts", "rollouts kept", "tokens", "GPU-hours", "US$", "of disk")


@dataclass(frozen=True, slots=True)
class Priced:
    """called: the study. costs: of each planned stage. spent: by the run's attempts so far. notes: what else is to be
    known of it."""

    called: str
    planned: list[Planned]
    costs: list[Cost]
    limits: Mapping[str, float]
    spent: Amounts
    sees: Foresight | None
    notes: tuple[str, ...]

    @classmethod
    def of(cls, study: Study, store: Store, budget: Budget, notes: tuple[str, ...] = ()) -> Priced:
        """Makes nothing. Errors: UserError for prices that cannot be read."""
        planned = plan(study, store)
        prices = team_prices(store.root).of(study.profile.name, study.profile.hardware)
        own = [
            *stands_on(study),
            not_measured(study.profile, planned),
            f"the run would pause before training: {said}" if (said := why_not(planned, store)) else "",
            without(study),
            *misread_traces(study),
            *small_divisors(study.profile),
            weight_checks(planned),
            told(study.profile.hardware, num_gpus()),
            *notes,
            *_prompts(study, store, planned),
            no_room(study, store, planned),
        ]
        return cls(
            called=study.profile.called,
            planned=planned,
            costs=costs(study, store, planned, prices),
            limits=budget.limits(),
            spent=Journal(store.root, run_id(study.profile.called, planned[-1].step.ref)).spent(),
            sees=foresight(study, store, planned, prices),
            notes=tuple(filter(None, own)),
        )

    @property
    def whole(self) -> Cost:
        return total(self.costs)

    def sentences(self) -> Iterator[str]:
        """What the table says, and what it does not, in words; no number of it is lost where a table has no room."""
        todo, left = sum(p.made_here for p in self.planned), sum(p.left for p in self.planned)
        elsewhere = f", {left} are left for another machine" if left else ""
        yield f"{self.called}: {todo} of {len(self.planned)} stages would be made{elsewhere}"
        in_all = [f"{n.strip()} {name}" for n, name in zip(amounts(self.whole), IN_ALL, strict=True) if n != NONE]
        yield f"in all {', '.join(in_all) or 'nothing that costs'}"
        if self.whole.basis and self.whole.least < self.whole.most:
            range_of = f"{short(self.whole.least).strip()} to {short(self.whole.most).strip()} tokens"
            yield f"{range_of}, as long as completions turn out to be: {LENGTHS[self.whole.basis]}"
        if self.sees is not None:
            yield self.sees.sentence()
        yield from self.notes
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
        """A page: the sentences, then a line a stage."""
        lines = [f"- {sentence}" for sentence in self.sentences()]
        table = [f"| | stage | {' | '.join(UNITS)} |", f"|---|---|{'---:|' * len(UNITS)}"]
        for p, cost in zip(self.planned, self.costs, strict=True):
            how = "reused" if p.reused else "left" if p.left else "make"
            table.append(f"| {how} | {p.step.title} | {' | '.join(amounts(cost))} |")
        return "\n".join([*lines, "", *table])

    def as_json(self) -> dict[str, object]:
        rows = [
            {"title": p.step.title, "ref": str(p.step.ref), "reused": p.reused, "left": p.left, **asdict(c)}
            for p, c in zip(self.planned, self.costs, strict=True)
        ]
        return {
            "profile": self.called,
            "stages": rows,
            "total": asdict(self.whole),
            "budget": dict(self.limits),
            "spent": self.spent.model_dump(),
            "sees": None if self.sees is None else asdict(self.sees),
            "notes": list(self.notes),
        }


def _prompts(study: Study, store: Store, planned: list[Planned]) -> Iterator[str]:
    limit = study.profile.hardware.max_model_len
    try:
        longest = longest_prompts(study, store, planned)
        yield summary(longest, limit)
        check_fit(longest, limit)
    except UserError as refused:
        yield f"the run would refuse it: {refused}"


def amounts(cost: Cost) -> list[str]:
    """Cells of a plan's line; a dash for what it does not need. `kept`: rollouts that are in the ledger already."""
    numbers = (
        (cost.rollouts, f"{cost.rollouts:,}"),
        (cost.rollouts_reused, f"{cost.rollouts_reused:,}"),
        (cost.tokens, short(cost.tokens)),
        (cost.gpu_hours, f"{cost.gpu_hours:.3g}"),
        (cost.usd, f"{cost.usd:,.2f}"),
        (cost.bytes, f"{short(cost.bytes)}B"),
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
