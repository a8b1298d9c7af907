"""Nightly re-evaluation: test whether the accuracy of trained adapters has changed.

Each night compares this machine's sampler and grader with those of the night before. If the sampler changed, all
held-out problems are sampled again, otherwise a few of them (the canary). A new grader grades the stored rollouts
again. On a deterministic engine the canary has the evaluation's seeds, so its tokens must be identical; on other
engines each night has its own seeds. tasks/domain/statistics/nights.py tests whether the accuracy changed.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flows.running.plan import Planned, plan
from flows.running.sessions import Listener, stages_of
from flows.study.request import Request
from flows.study.resolve import Study
from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Pool, Rollouts, Splits, Training
from storage.artifacts.store import Store
from storage.errors import Parked, UserError
from storage.ledger import LEDGER, Ledger
from storage.reading.charts import as_svg
from storage.records.record import Night, nights_of
from storage.records.runs import now, read_record, record_paths
from tasks.domain.policies import Policy, Sampling
from tasks.domain.problems.problems import of_split
from tasks.domain.statistics.nights import CANARY_TOKENS, QUARTER, level_of, look
from tasks.engines.hardware import engine_name, engine_now, gpus_here
from tasks.engines.sampling.endpoint import endpoint_for
from tasks.engines.sampling.sampler import RolloutRequest
from tasks.regrading import regrade
from tasks.rollouts import account_of, ensure_rollouts, entered, ledger_keys, requests_for, served
from tasks.sampling import sample_rollouts
from tasks.stage import Session, Step

# ---- everything that can change a sampled token or its verdict: engine, torch, CUDA, driver, GPU, model, scaffold,
# grader


#: If one of these changed, new rollouts are needed. After any other change, stored rollouts are parsed or graded again.
SAMPLES = ("engine", "served model", "torch", "CUDA", "driver", "card", "model")
UNKNOWN = "unknown"


def environment_now(study: Study, policy: Policy) -> dict[str, str]:
    """Return this machine's environment for sampling and grading. A server without a version is `unknown`."""
    hardware = study.profile.hardware
    if engine_name(hardware.engine) == "openai":
        server = endpoint_for(hardware.endpoint)
        samples = {"engine": f"openai {server.version()}", "served model": server.model(None, hardware.served_model)}
    elif hardware.remote:
        samples = {"engine": engine_now(hardware.engine), "served model": hardware.served_model}
    else:
        import torch

        seen = [] if hardware.device == "cpu" else gpus_here()
        samples = {
            "engine": engine_now(hardware.engine),
            "torch": metadata.version("torch"),
            "CUDA": torch.version.cuda or "none",
            "driver": ", ".join(sorted({gpu.driver for gpu in seen})) or "none",
            "card": _card([gpu.name for gpu in seen]),
        }
    rest = {"model": policy.model.sha256, "scaffold": policy.scaffold.digest, "grader": study.grader.version}
    return samples | rest


def environment_of(store: Store, rollouts: Ref, policy: Policy, sampling: Sampling) -> dict[str, str]:
    """Return the environment of an evaluation (sampling and grading), from the ledger and its manifest."""
    manifest, rows = store.manifest(rollouts), Ledger(store.root).rows(account_of(policy, sampling), ["engine"])
    engine = UNKNOWN if rows is None else ", ".join(sorted(rows["engine"].unique().to_pylist()))
    graders = store.read(rollouts, ["grader_version"])["grader_version"].unique().to_pylist()
    found = {"engine": engine, "model": policy.model.sha256, "grader": ", ".join(sorted(graders))}
    if not engine.startswith(("openai", "tinker")):
        provenance = manifest.provenance
        found |= {"torch": torch} if (torch := provenance.packages.get("torch")) else {}
        found |= {"card": _card(provenance.hardware.split(", ")[:-1])}
    return found


def _card(names: list[str]) -> str:
    """Return the GPU models, without their number, because a process may see only some of its machine's GPUs."""
    return ", ".join(sorted(set(names))) or "cpu"


def changes(before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """
    >>> changes({"engine": "vllm 0.10", "card": "H100"}, {"engine": "vllm 0.11", "card": "H100", "driver": "580.1"})
    {'engine': 'engine vllm 0.10 → vllm 0.11'}
    """
    return {
        name: f"{name} {before[name]} → {now[name]}" for name in before if now.get(name, before[name]) != before[name]
    }


#: After a night with all problems and a statistic beyond UNDECIDED, all problems are sampled again, for at most NIGHTS
#: nights.
UNDECIDED, NIGHTS = 2.0, 3
TOKENS = pa.schema([LEDGER.field("token_ids")])
CORRECT = pa.schema([LEDGER.field(name) for name in ("problem_id", "correct")])


@dataclass(frozen=True, slots=True)
class Kept:
    """One adapter and the rollouts of its first evaluation, the reference. step: the step that made these rollouts."""

    policy: Policy
    training: Training
    reference: Rollouts
    pool: Pool
    splits: Splits
    sampling: Sampling
    group_size: int
    step: Step

    @property
    def adapter(self) -> str:
        return f"{self.policy.arm} {self.training}@{self.policy.step}"


class Unchecked(NamedTuple):
    """An adapter that could not be compared. found: the reason."""

    adapter: str
    found: str
    state: str = "unchecked"
    evaluated: float | None = None
    tonight: float | None = None


def reevaluate(
    store: Store,
    studies: Sequence[Study | Unchecked],
    charged: Callable[[Study], AbstractContextManager[Listener]],
    *,
    canary_tokens: int = CANARY_TOKENS,
    anyway: bool = False,
) -> Iterator[Night | Unchecked]:
    """Yield the result for every adapter of the studies. At a budget limit, which also holds for the adapters that
    follow, raise Parked. studies: by default those of all finished runs; a study that cannot be resolved is replaced by
    the reason. charged: returns the listener for a study's work. canary_tokens: per adapter, in a night without
    changes. anyway: sample all problems in any case."""
    seen = set[str]()
    for study in studies or _finished(store):
        if isinstance(study, Unchecked):
            yield study
            continue
        try:
            kept_ones = list(kept_adapters(study, store))
        except UserError as error:  # the other studies are still evaluated
            kept_ones = [Unchecked(f"adapters of {study.profile.called}", str(error))]
        with charged(study) as listener, stages_of(study, store, listener) as current:
            for kept in kept_ones:
                if kept.adapter in seen:
                    continue
                seen.add(kept.adapter)
                if isinstance(kept, Unchecked):
                    yield kept
                    continue
                try:
                    yield night(current, study, kept, canary_tokens=canary_tokens, anyway=anyway)
                except Parked:
                    raise
                except UserError as error:  # the other adapters are still evaluated
                    yield Unchecked(kept.adapter, str(error))


def _finished(store: Store) -> Iterator[Study | Unchecked]:
    """Yield the studies of finished runs. A study that cannot be resolved here gives an unchecked adapter."""
    for path in record_paths(store.root):
        try:
            run = read_record(path)
            if run.state == "finished":
                yield Request.from_json(run.request).study(store)
        except UserError as error:
            yield Unchecked(f"adapters of {path.stem}", str(error))


def kept_adapters(study: Study, store: Store) -> Iterator[Kept | Unchecked]:
    """Yield the newest adapter of every arm and seed with its reference, or why it cannot be compared."""
    found: dict[tuple[str, str], tuple[Kept, Planned]] = {}
    for planned in plan(study, store):
        step, given = planned.step, planned.step.arguments
        if step.recipe.stage == sample_rollouts.name and given["split"] == "heldout" and given["training"] is not None:
            names = ("pool", "splits", "sampling", "group_size")
            inputs = {name: given[name] for name in (*names, "policy", "training")}
            kept = Kept(**inputs, reference=Rollouts.parse(str(step.ref)), step=step)
            earlier = found.get((kept.policy.arm, str(kept.training)))
            if earlier is None or kept.policy.step >= earlier[0].policy.step:
                found[kept.policy.arm, str(kept.training)] = kept, planned
    for kept, planned in found.values():
        yield kept if planned.reused else Unchecked(kept.adapter, _why_not(store, kept))


def _why_not(store: Store, kept: Kept) -> str:
    for ref in (kept.training, kept.reference):
        if store.path(ref).exists() and not store.has(ref):
            return f"{ref} is damaged: `varband store verify --repair`, and run the study again"
    return "its evaluation is not made yet"


def night(
    current: Session, study: Study, kept: Kept, *, canary_tokens: int = CANARY_TOKENS, anyway: bool = False
) -> Night:
    """Sample what tonight requires, compare it, and store the record. A second night on the same day repeats the first,
    unless something changed in between."""
    store, earlier, moment = current.store, nights_of(current.store.root, kept.adapter), now()
    evaluated_in = environment_of(store, kept.reference, kept.policy, kept.sampling)
    environment = environment_now(study, kept.policy)
    sampler = _sampler(environment)
    last = earlier[-1] if earlier else None
    if last and last.at[:10] == moment[:10] and last.environment == environment and not anyway:
        return last
    changed = changes(last.environment if last else evaluated_in, environment)
    sentences = [", ".join(changed.values()) or "nothing changed"]
    number, seed = len(earlier) + 1, derived_seed("night", kept.sampling.seed, *sampler)
    draws = _Draws(current, kept, study.profile.training.lora_rank)
    evaluation = _Evaluation.of(store, study, kept)
    if evaluation.flips:
        sentences.append(f"{evaluation.flips} of {evaluation.rollouts} stored verdicts changed")
    canary = _canary(evaluation, canary_tokens, seed + number)
    same = current.toolbox.exact and draws.known(canary)
    differing = draws.differing(canary, derived_seed("the same seeds", seed), number) if same else 0
    if same:
        completions = f"{differing or ''} of {len(canary) * kept.group_size} completions".removeprefix(" of ")
        how = "differ from the evaluation's, of the same seeds" if differing else "are the evaluation's, token by token"
        sentences.append(f"{completions} {how}")
    unknown = UNKNOWN in environment["engine"] and not canary
    if anyway or differing or unknown or set(changed) & set(SAMPLES) or _undecided(earlier, sampler):
        problems, drawn = evaluation.problems, "whole"
    elif same:
        problems, drawn = [], "same"
    else:
        problems, drawn = canary, "canary" if canary else "nothing"
    counts = draws.correct(problems, seed, number) if problems else {}
    tonight = Night(
        adapter=kept.adapter,
        number=number,
        at=moment,
        environment=environment,
        as_evaluated=not set(changes(evaluated_in, environment)) & set(SAMPLES),
        drawn=drawn,
        seed=seed,
        group_size=kept.group_size,
        problems=tuple(problems),
        correct=tuple(counts[one] for one in problems),
        state="drifted" if evaluation.flips else "holds",
        found="; ".join(sentences),
        evaluated=evaluation.accuracy,
    )
    return (_compared(tonight, evaluation, earlier, draws) if problems else tonight).keep(store.root)


def _undecided(earlier: Sequence[Night], sampler: list[str]) -> bool:
    """Return whether nights with all problems and this sampler left open whether the accuracy changed."""
    whole = [one.drawn == "whole" and _sampler(one.environment) == sampler for one in earlier[-NIGHTS:]]
    return bool(whole) and whole[-1] and abs(earlier[-1].z) >= UNDECIDED and sum(whole) < NIGHTS


def _sampler(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={environment.get(name)}" for name in SAMPLES]


def _compared(tonight: Night, evaluation: _Evaluation, earlier: Sequence[Night], draws: _Draws) -> Night:
    """Compare tonight with the evaluation, and with earlier nights that had the evaluation's sampler or tonight's."""
    sampler, grader = _sampler(tonight.environment), tonight.environment["grader"]
    compared = [one for one in earlier if one.problems]
    alike = [one for one in compared if one.as_evaluated]
    changed = 1 if tonight.as_evaluated else 1 + len(alike)  # the accuracy may have changed with the sampler
    if not tonight.as_evaluated:
        alike += [one for one in compared if not one.as_evaluated and _sampler(one.environment) == sampler]
    correct, drawn = [evaluation.correct], [dict.fromkeys(evaluation.problems, tonight.group_size)]
    for one in (*alike, tonight):
        counts = Counter(dict(zip(one.problems, one.correct, strict=True)))
        regraded = one.environment["grader"] != grader
        correct.append(draws.correct(one.problems, one.seed, one.number) if regraded else counts)
        drawn.append(dict.fromkeys(one.problems, one.group_size))
    table = lambda rows: np.array([[row.get(one, 0) for one in evaluation.problems] for row in rows])  # noqa: E731
    level = level_of([one.drawn == "whole" for one in (*earlier[1 - QUARTER :], tonight)])
    found = look(table(correct), table(drawn), level, tonight.seed + tonight.number, changed)
    of = "all" if len(tonight.problems) == len(evaluation.problems) else f"{len(tonight.problems)} of"
    finding = f"accuracy {found.tonight:.3f} on {of} {len(evaluation.problems)} problems,"
    finding += f" {found.expected:.3f} expected ({found.low:.3f} to {found.high:.3f})"
    if found.alarm:
        direction = "lower" if found.change < 0 else "higher"
        finding += f"; {direction} by {abs(100 * found.change):.1f} points than before (p = {found.p:.2g})"
    state = {"state": "drifted"} if found.alarm else {}
    figures = {name: getattr(found, name) for name in ("tonight", "expected", "low", "high", "z")}
    return tonight.model_copy(update={**figures, **state, "found": f"{tonight.found}; {finding}"})


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """An evaluation, under tonight's grader. correct: rollouts by problem. flips: changed ones. tokens: per problem."""

    problems: list[str]
    correct: Counter[str]
    rollouts: int
    flips: int
    tokens: float

    @property
    def accuracy(self) -> float:
        return sum(self.correct.values()) / self.rollouts

    @classmethod
    def of(cls, store: Store, study: Study, kept: Kept) -> _Evaluation:
        columns = ["problem_id", "rollout", "correct", "num_tokens"]
        before = store.read(kept.reference, columns)
        now = store.read(regrade(rollouts=kept.reference, pool=kept.pool, grader=study.grader), columns)
        if not before.num_rows:
            raise UserError(f"{kept.reference} has no rollouts: there is nothing to compare with")
        problems = sorted(set(now["problem_id"].to_pylist()))
        flips = int(np.sum(before["correct"].to_numpy() != now["correct"].to_numpy()))
        tokens = sum(now["num_tokens"].to_pylist()) / len(problems)
        return cls(problems, _correct(now), now.num_rows, flips, tokens)


def _correct(rows: pa.Table) -> Counter[str]:
    pairs = zip(rows["problem_id"].to_pylist(), rows["correct"].to_pylist(), strict=True)
    return Counter(problem for problem, correct in pairs if correct)


def _canary(evaluation: _Evaluation, tokens: int, seed: int) -> list[str]:
    """Return problems that take about this many tokens. The choice differs each night, whatever the accuracy."""
    number = min(len(evaluation.problems), int(tokens / max(1.0, evaluation.tokens)))
    chosen = np.random.default_rng(seed).choice(len(evaluation.problems), number, replace=False)
    return [evaluation.problems[i] for i in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class _Draws:
    """The rollouts of one adapter's nights. All are in the ledger, under distinct sample numbers."""

    current: Session
    kept: Kept
    lora_rank: int

    def _requests(self, wanted: Sequence[str], seed: int, night: int = 0) -> list[RolloutRequest]:
        store, kept = self.current.store, self.kept
        problems = of_split(store.read(kept.pool), store.read(kept.splits), "heldout")
        problems = problems.filter(pc.field("problem_id").isin(list(wanted)))
        rollouts = range(night * kept.group_size, (night + 1) * kept.group_size)
        return requests_for(problems, kept.policy, replace(kept.sampling, seed=seed), rollouts)

    def _sampled(self, requests: list[RolloutRequest], columns: pa.Schema) -> pa.Table:
        kept = self.kept
        with self.current.at_work_on(kept.step):
            ensure_rollouts(requests, served(kept.policy, kept.training), kept.policy.model, self.lora_rank)
        return entered(requests, columns)

    def known(self, wanted: Sequence[str]) -> bool:
        """Return whether the ledger still has the tokens of the evaluation of these problems."""
        entries = Ledger(self.current.store.root).entries(account_of(self.kept.policy, self.kept.sampling))
        return bool(wanted) and not entries.lacking(ledger_keys(self._requests(wanted, self.kept.sampling.seed)))

    def differing(self, wanted: Sequence[str], seed: int, night: int) -> int:
        """Sample the evaluation's rollouts of these problems again, and return how many have other tokens. seed: that
        of the ledger's entries; the engine gets the evaluation's seeds."""
        before, entry = self._requests(wanted, self.kept.sampling.seed), self._requests(wanted, seed, night)
        again = [replace(one, request_seed=was.request_seed) for one, was in zip(entry, before, strict=True)]
        pairs = zip(entered(before, TOKENS)["token_ids"], self._sampled(again, TOKENS)["token_ids"], strict=True)
        return sum(one != other for one, other in pairs)

    def correct(self, wanted: Sequence[str], seed: int, night: int) -> Counter[str]:
        """Return the correct rollouts by problem, of tonight or an earlier night, under tonight's grader."""
        return _correct(self._sampled(self._requests(wanted, seed, night), CORRECT))


NIGHTS_SHOWN = 30


def counts_of(found: Sequence[Night | Unchecked]) -> str:
    counts = Counter(one.state for one in found)
    return f"{counts['holds']} hold, {counts['drifted']} drifted, {counts['unchecked']} were not checked"


def sentence_of(found: Sequence[Night | Unchecked]) -> str:
    """Return the counts, and then every adapter that needs attention with the reason, as one text."""
    bad = sorted((one for one in found if one.state != "holds"), key=attrgetter("state"))
    nothing = [] if found else ["there is no adapter to look at: name a study, or finish a run in this root"]
    return ": ".join(
        filter(None, (counts_of(found), "; ".join([*(f"{one.adapter}: {one.found}" for one in bad), *nothing])))
    )


def page_of(found: Sequence[Night | Unchecked], root: Path) -> str:
    """Return the page of a night in Markdown: its sentence, a row for each adapter, and a chart of its last nights."""
    lines = [sentence_of(found), "", "| adapter | | evaluated | tonight | compared |", "|---|---|---|---|---|"]
    for one in found:
        evaluated, tonight = ("" if value is None else f"{value:.3f}" for value in (one.evaluated, one.tonight))
        lines.append(f"| {one.adapter} | {one.state} | {evaluated} | {tonight} | {one.found} |")
    for one in found:
        if drawn := [night for night in nights_of(root, one.adapter) if night.tonight is not None][-NIGHTS_SHOWN:]:
            svg = base64.b64encode(as_svg(picture(drawn), page="white").encode()).decode()
            lines += ["", f"![The last nights of {one.adapter}](data:image/svg+xml;base64,{svg})"]
    return "\n".join(lines)


def picture(nights: Sequence[Night]) -> dict[str, Any]:
    """Return a Vega-Lite chart of one adapter: accuracy by night, and the range of 95 % of nights without a change."""
    rows = [night.model_dump(include={"number", "tonight", "expected", "low", "high", "state"}) for night in nights]
    axis = {"field": "number", "type": "quantitative", "title": "night", "axis": {"tickMinStep": 1, "format": "d"}}
    layer = lambda mark, **y: {"mark": mark, "encoding": {"x": axis, **y}}  # noqa: E731
    accuracy = {"type": "quantitative", "title": "accuracy", "scale": {"zero": False}}
    colour = {
        "field": "state",
        "scale": {"domain": ["holds", "drifted"], "range": ["#2a78d6", "#e34948"]},
        "title": None,
    }
    return {
        "title": nights[0].adapter,
        "description": f"Accuracy of {nights[0].adapter} by night",
        "data": {"values": rows},
        "layer": [
            layer({"type": "bar", "opacity": 0.2, "size": 8}, y={"field": "low", **accuracy}, y2={"field": "high"}),
            layer({"type": "tick", "orient": "horizontal"}, y={"field": "expected", **accuracy}),
            layer({"type": "point", "filled": True}, y={"field": "tonight", **accuracy}, color=colour),
        ],
    }
