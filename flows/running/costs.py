"""The cost of a planned study: rollouts that the ledger lacks × tokens × seconds × prices. Nothing is run.

Lengths and rates are those that this store has measured, or else assumptions; the plan says which. The cost is a range
too, because a study takes fewer tokens if most of its problems are easy.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from flows.running.fit import longest_prompts, problems_before_checks
from flows.running.plan import Planned
from flows.study.resolve import Study
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Benchmark
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.estimates import Band
from storage.ledger import Account, Ledger
from storage.records.runs import Amounts
from storage.records.spending import charges
from storage.sql import query
from tasks.domain.budget import Prices
from tasks.domain.grpo.advantages.registry import ADVANTAGES
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.rewards import judge_of
from tasks.domain.grpo.steps import evaluated_steps
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.problems import heldout_of
from tasks.domain.search.method import CERTAINTY, PREFIX
from tasks.embedding import EncoderSpec
from tasks.engines.hardware import SAME_BITS
from tasks.metering import SAMPLED
from tasks.rollouts import account_of

#: Assumptions until something is measured: the shares of max_tokens that completions take (at least, probably, at
#: most), characters per token, characters of a problem, texts embedded per second on a CPU and on a GPU (measured with
#: all-mpnet-base-v2 on one H200: 680).
FILL, CHARACTERS, PROBLEM, TEXTS_PER_SECOND = (0.05, 0.3, 1.0), 4.0, 240.0, {"cpu": 40.0, "cuda": 500.0}
#: How a length is known, from the best way to the worst.
BASES = ("", "measured", "guessed", "assumed")


class Cost(Amounts):
    """The cost of one stage. least, most: tokens if completions are shorter or longer than expected. basis: how the
    lengths are known, see `Length`; empty if nothing is sampled."""

    rollouts: int = 0
    rollouts_reused: int = 0
    basis: str = ""
    least: float = 0.0
    most: float = 0.0


def total(costs: Sequence[Cost]) -> Cost:
    sums = {name: sum(getattr(cost, name) for cost in costs) for name in Cost.model_fields if name != "basis"}
    return Cost(basis=max((cost.basis for cost in costs), key=BASES.index, default=""), **sums)


def costs(study: Study, store: Store, planned: Sequence[Planned], prices: Prices) -> list[Cost]:
    estimator = Estimator(study, store, planned, prices)
    return [estimator.cost(p) if p.made_here else Cost() for p in planned]


@dataclass(frozen=True, slots=True)
class _ProblemSet:
    """Problems that a step samples. within: the set that contains them all. ids: None if not known yet."""

    name: str
    within: str
    number: int
    ids: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Length:
    """Mean tokens of a rollout. low, high: range of the mean lengths of the middle 90 % of problems. basis: `measured`;
    `guessed` from another max_tokens, arm or model; `assumed` if this store has no similar rollouts."""

    prompt: float
    completion: float
    basis: str
    low: float
    high: float


class Estimator:
    """Computes the cost of a plan's steps, in order, and remembers the rollouts that earlier steps will sample."""

    def __init__(self, study: Study, store: Store, planned: Sequence[Planned], prices: Prices) -> None:
        self.study, self.store, self.prices = study, store, prices
        self.planned = {one.step.ref: one for one in planned}
        self._ledger = Ledger(store.root)
        self._promised: dict[Account, dict[str, int]] = {}
        self._lengths: dict[tuple[str, str, int], Length] = {}
        self._rates = measured_rates(store, study.profile.called)
        self._service = study.profile.hardware.engine == "tinker"  # a service trains for money, not for GPU-hours

    def cost(self, planned: Planned) -> Cost:
        given = planned.step.arguments
        match planned.step.ref.kind:
            case "rollouts" if "policy" in given:  # a regrading costs nothing
                wanted = self.problem_set(given, given["split"])
                sampled = self._sampled(given["policy"], given["sampling"], wanted, given["group_size"])
                return self._timed("rollouts", sampled)
            case "training" if "learner" in given:  # an adapter from elsewhere is only copied
                return self._training(planned.step.ref, given)
            case "searches":
                return self._searched(given)
            case "embeddings":
                encoder: EncoderSpec = given["encoder"]
                texts = (1 + len(encoder.windows)) * self._rows_of(given["rollouts"])
                on_gpu = self.study.profile.hardware.device == "cuda" or self.prices.device != "cpu"
                hours = texts / TEXTS_PER_SECOND["cuda" if on_gpu else "cpu"] / 3600
                return Cost(gpu_hours=hours, usd=self.prices.of_hours(self.prices.device, hours))
        return Cost()

    def _sampled(self, policy: Policy, sampling: Sampling, wanted: _ProblemSet, group_size: int) -> Cost:
        """Return the cost, without hours, of rollouts that neither the ledger has nor an earlier step makes."""
        account, problems = account_of(policy, sampling), wanted.number
        promised = self._promised.setdefault(account, {})
        before = max(promised.get(name, 0) for name in (wanted.within, wanted.name))
        promised[wanted.name] = max(before, group_size)
        had = before * problems or min(problems * group_size, self._entered(account, group_size, wanted.ids))
        missing = max(0, problems * group_size - had)
        sampled = self._of(policy.arm, missing, self._length(policy, sampling))
        return sampled.model_copy(update={"rollouts_reused": problems * group_size - missing})

    def _of(self, arm: str, rollouts: int, length: Length) -> Cost:
        """Return the cost, without hours, of this number of rollouts."""
        prompt, completion = rollouts * length.prompt, rollouts * length.completion
        return Cost(
            rollouts=rollouts,
            tokens=prompt + completion,
            usd=self.prices.of_tokens(arm, prompt, completion),
            basis=length.basis if rollouts else "",
            least=prompt + rollouts * length.low,
            most=prompt + rollouts * length.high,
        )

    def _searched(self, given: Mapping[str, Any]) -> Cost:
        """Return the largest cost of a search within its budget. Its parts are rollouts of the problems that are
        neither stored nor planned, and prompts with two earlier completions. Each rollout is read once more for its
        score. A reward model's tokens count in the budget; reading the token distributions costs only hours."""
        wanted, policy, sampling = self.problem_set(given, given["split"]), given["policy"], given["sampling"]
        length = self._length(policy, sampling)
        draws, later = given["method"].most
        longer = length.prompt + 2 * length.completion
        whole, reward = length.prompt + length.completion, given["method"].reward
        scored = 0.0 if reward in ("", CERTAINTY) else whole
        each = draws * (whole + scored) + later * (longer + length.completion + scored)
        share = min(1.0, (given["tokens"] + longer + length.completion + scored) / each)
        own = self._sampled(policy, sampling, wanted, max(1, round(share * draws))) if draws else Cost()
        rollouts = round(share * later) * wanted.number
        # a search stops at its budget, even if its completions are long
        question = replace(length, prompt=longer, low=length.completion, high=length.completion)
        later_cost = self._of(policy.arm, rollouts, question)
        read = whole * (own.rollouts + own.rollouts_reused + rollouts) if reward else 0.0
        return self._timed("searches", total([own, later_cost]), read=read)

    def _training(self, ref: Ref, given: Mapping[str, Any]) -> Cost:
        """Return the cost of a training: the groups of every step, and the held-out rollouts of evaluated steps."""
        learner: LearnerConfig = given["learner"]
        base: Policy = given["start"]
        length = self._length(base, given["rollouts"])
        turns = 3 if "refinements" in ADVANTAGES[learner.advantage].needs else 1
        groups = min(learner.groups_per_step, self._trainable(given) or learner.groups_per_step)
        a_step = groups * learner.group_size * turns
        trained = learner.steps * a_step
        if learner.token_budget:  # the step that exceeds the budget is still finished
            trained = min(trained, a_step * math.ceil(learner.token_budget / (a_step * length.completion)))
        steps = self._of(base.arm, trained, length)
        parts = [steps]
        if self._service:
            usd = self.prices.of_training(base.arm, steps.tokens)
            parts.append(Cost(tokens=steps.tokens, usd=usd, least=steps.least, most=steps.most))
        heldout, evaluated_group = self.problem_set(given, "heldout"), given["evaluation_group_size"]
        for step in evaluated_steps(learner.steps, learner.eval_every)[1:] if evaluated_group else ():
            policy = replace(base, adapter=str(ref), adapter_step=step, step=step)
            parts.append(self._sampled(policy, given["evaluation"], heldout, evaluated_group))
        read = steps.tokens if judge_of(learner) else 0.0
        return self._timed("training", total(parts), learned=0.0 if self._service else steps.tokens, read=read)

    def _trainable(self, given: Mapping[str, Any]) -> int:
        """Return the number of training problems; an upper bound while the bands are unknown."""
        problems, bands = self.problem_set(given, "train"), given["bands"]
        if bands is None or problems.ids is None or not self.store.has(bands):
            return problems.number
        rows = self.store.read(bands, ["problem_id", "band"]).to_pylist()
        return len(problems.ids & {row["problem_id"] for row in rows if row["band"] == Band.VARIANCE})

    def _timed(self, kind: str, cost: Cost, learned: float = 0.0, read: float = 0.0) -> Cost:
        """Return the cost with its GPU-hours. learned, read: tokens that take hours but no token budget. Reading is
        assumed to be as fast as sampling. Several engines share a stage's rollouts, but more replicas hardly shorten
        training, because each step waits for its longest rollout."""
        elsewhere = self._service if kind == "training" else kind in SAMPLED and not self.prices.hours_of_sampling
        sampled = 0.0 if elsewhere else cost.tokens
        if kind in self._rates and not elsewhere:
            hours = (sampled + read) / self._rates[kind]
        else:
            hardware = self.study.profile.hardware
            engines = 1 if learned else hardware.replicas
            sampling = (sampled + read) / self.prices.sampled_per_second / engines
            seconds = sampling + learned / self.prices.trained_per_second
            hours = seconds * hardware.gpus / 3600 * (SAME_BITS if hardware.determinism == "bits" else 1)
        usd = cost.usd + self.prices.of_hours(self.prices.device, hours)
        return cost.model_copy(update={"gpu_hours": hours, "usd": usd})

    def problem_set(self, given: Mapping[str, Any], split: str | None) -> _ProblemSet:
        """Return the problems of a step. The number is an upper bound until the split or the choice is made."""
        splits, pool = given["splits"], given["pool"]
        within, name = (str(splits), str(splits)) if isinstance(splits, Benchmark) else ("", split or "")
        if self.store.has(splits):
            rows = self.store.read(splits, ["problem_id", "split"]).to_pylist()
            ids = frozenset(row["problem_id"] for row in rows if split in (None, row["split"]))
            return _ProblemSet(name, within, len(ids), ids)
        split_arguments = self.planned[splits].step.arguments
        rows = problems_before_checks(self.planned[pool].step.arguments, self.study.places)
        if isinstance(splits, Benchmark):
            levels, most = split_arguments["levels"], split_arguments["per_level"]
            each = Counter(row["level"] for row in rows if not levels or row["level"] in levels)
            return _ProblemSet(name, within, sum(min(n, most or n) for n in each.values()), frozenset())
        counts = Counter(row["source"] for row in rows)
        size, held = counts.total(), heldout_of(counts, split_arguments.get("heldout_per_source", 0)).total()
        return _ProblemSet(name, within, {None: size, "heldout": held}.get(split, size - held), None)

    def _rows_of(self, rollouts: Ref) -> int:
        if self.store.has(rollouts):
            return self.store.manifest(rollouts).rows
        given = self.planned[rollouts].step.arguments
        if "rollouts" in given:  # a regrading has as many as before
            return self._rows_of(given["rollouts"])
        return self.problem_set(given, given["split"]).number * given["group_size"]

    def _entered(self, account: Account, group_size: int, ids: frozenset[str] | None) -> int:
        wanted = pa.table({"problem_id": pa.array([] if ids is None else sorted(ids), pa.string())})
        within = "" if ids is None else "and problem_id in (from wanted)"
        found = query(
            f"select count(distinct (problem_id, rollout)) as n from keys where rollout < $group_size {within}",
            {"group_size": group_size},
            keys=self._ledger.entries(account).keys,
            wanted=wanted,
        )
        return found["n"][0].as_py()

    def _length(self, policy: Policy, sampling: Sampling) -> Length:
        """Return the mean tokens per rollout of this arm with this model and max_tokens, at any step."""
        key = (policy.arm, policy.model.name, sampling.max_tokens)
        if key not in self._lengths:
            low, mean, high = (share * key[-1] for share in FILL)
            characters = PROBLEM + len(policy.scaffold.prompt_text(""))
            self._lengths[key] = likely_length(self._ledger, *key) or Length(
                self._prompts.get(policy.arm, characters / CHARACTERS), mean, "assumed", low, high
            )
        return self._lengths[key]

    @cached_property
    def _prompts(self) -> dict[str, float]:
        """Return the mean tokens of each arm's prompts, if tokenizer and problems are on this machine."""
        with suppress(UserError):  # the run will raise it for an arm without a chat template
            return {one.arm: one.mean for one in longest_prompts(self.study, self.store, [*self.planned.values()])}
        return {}


def likely_length(ledger: Ledger, arm: str, model: str, max_tokens: int) -> Length | None:
    """Return the length of an arm's rollouts with this model and max_tokens, at any step; None if unknown. The length
    is that of the most similar rollouts of this store: this arm with this model, another arm with this model, or this
    arm with another model. Later rounds of searches are excluded, because their prompts contain earlier completions."""
    measured = [(a, about) for a, about in ledger.accounts() if isinstance(about.get("max_tokens"), int)]
    own = [(a, about) for a, about in measured if about.get("arm") == arm and about.get("model", model) == model]
    for basis, alike in (
        ("measured", [a for a, about in own if about["max_tokens"] == max_tokens]),
        ("guessed", [a for a, _ in own]),
        ("guessed", [a for a, about in measured if about.get("model") == model]),
        ("guessed", [a for a, about in measured if about.get("arm") == arm]),
    ):
        columns = ["problem_id", "num_prompt_tokens", "num_tokens"]
        parts = [rows for a in alike if (rows := ledger.rows(a, columns)) is not None]
        if not parts:
            continue
        (found,) = query(
            "with problems as (select avg(num_prompt_tokens) p, avg(least(num_tokens, $max)) c, count(*) n from rows"
            " where not starts_with(problem_id, $later) group by problem_id)"
            " select sum(p * n) / sum(n) p, sum(c * n) / sum(n) c, quantile_cont(c, 0.05) low,"
            " quantile_cont(c, 0.95) high from problems",
            {"later": PREFIX, "max": max_tokens},
            rows=pa.concat_tables(parts),
        ).to_pylist()
        if found["p"] is not None:
            return Length(found["p"], found["c"], basis, found["low"], found["high"])
    return None


def measured_rates(store: Store, profile: str) -> dict[str, float]:
    """Return tokens per GPU-hour of sampling and of training, from what runs of this profile were charged."""
    rows = query(
        "select kind, sum(tokens) / sum(gpu_hours) as rate from charged where run like $profile || '-%'"
        " group by kind having sum(gpu_hours) > 0 and sum(tokens) > 0",
        {"profile": profile},
        charged=charges(store.root),
    )
    return {row["kind"]: row["rate"] for row in rows.to_pylist()}
