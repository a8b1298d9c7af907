"""Obtain requested rollouts: take those in the ledger, and sample and store the others.

All stages that need rollouts (sampling, training) use this module, which makes sure that no rollout is paid for twice.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa

from storage.artifacts.fingerprint import derived_seed
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Training
from storage.errors import Parked, UserError
from storage.leases import leases_of
from storage.ledger import LEDGER, Account, Entries, Ledger, read_shard
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter, another_base
from tasks.engines.adapter_files import served_name
from tasks.engines.hardware import release_memory
from tasks.engines.protocols import Request
from tasks.engines.sampling.prompts import refuse_leaked_problems
from tasks.engines.sampling.same_policy import EXACT, ROUNDED, Score, few, refuse_other_weights
from tasks.engines.sampling.sampler import (
    FLUSH_SECONDS,
    LINGER_SECONDS,
    LiveSampling,
    RolloutRequest,
    Rows,
    SamplingStats,
    sample,
)
from tasks.evidence import base_of
from tasks.grading import actively_graded
from tasks.metering import SAMPLING, meter
from tasks.stage import ledger, making, progress, store, toolbox

#: If a larger share of rollouts has no answer, sampling reports it.
MANY_UNANSWERED = 0.5
#: The largest columns of the ledger. Only training needs them.
FOR_TRAINING = ("prompt_ids", "token_ids", "logprobs")


def account_of(policy: Policy, sampling: Sampling) -> Account:
    return Account.of(policy.identity(), sampling.identity(policy.scaffold.stop))


def about(policy: Policy, sampling: Sampling) -> dict[str, object]:
    """Describe a ledger account. rewarded_by: version of the grader that rewards the current training's rollouts."""
    own = isinstance(making(), Training) and policy.adapter == str(making())
    rewarded: dict[str, object] = {"rewarded_by": toolbox().grader.version} if own else {}
    return rewarded | described(policy, sampling)


def described(policy: Policy, sampling: Sampling) -> dict[str, object]:
    """Return the part of an account's description that is the same for every process that samples."""
    return {
        "arm": policy.arm,
        "model": policy.model.name,
        "adapter": policy.adapter,
        "step": policy.step,
        **({"role": policy.role} if policy.role else {}),
        "scaffold": policy.scaffold.digest,
        **sampling.identity(policy.scaffold.stop),
    }


def served(policy: Policy, training: Ref | None) -> ServedAdapter | None:
    """Return the adapter of a policy; None at step 0. Raise UserError for an adapter of another base model."""
    if training is None or not policy.adapter_step:
        return None
    trained_on = base_of(training)
    if trained_on != policy.model:
        raise another_base(f"the policy of {policy.arm}", policy.model, str(training), trained_on)
    folder = store().files(training) / f"step-{policy.adapter_step:04d}"
    return ServedAdapter(f"{training}-step-{policy.adapter_step}", folder)


def requests_for(problems: pa.Table, policy: Policy, sampling: Sampling, rollouts: range) -> list[RolloutRequest]:
    """Return requests for every (problem, rollout), by problem. A request's seed depends only on sampling seed, problem
    and rollout, so it is the same in every arm and on every day."""
    return [
        RolloutRequest(
            row["problem_id"],
            row["source"],
            row["problem"],
            row["gold"],
            i,
            policy,
            sampling,
            derived_seed(sampling.seed, row["problem_id"], i),
        )
        for row in problems.select(["problem_id", "source", "problem", "gold"]).to_pylist()
        for i in rollouts
    ]


def ensure_rollouts(
    requested: Sequence[RolloutRequest],
    adapter: ServedAdapter | None,
    model: BaseModel,
    lora_rank: int,
    more: Callable[[Rows], Sequence[RolloutRequest]] | None = None,
    ahead: int = 0,
    total: int | None = None,
    score: Score | None = None,
) -> SamplingStats:
    """Sample the rollouts that the ledger lacks, all with the same kv_cache. Return the sampling statistics.

    If another process is sampling the same problems, wait until their rollouts are in the ledger or that process is
    gone. After a change of weights the learner checks the log-probs of the first sampled tokens, and only then these
    rollouts count. If a kill prevents this check, the next process makes it. Raise UserError if weights are wrong.

    - adapter: the weights of the policy; None if all rollouts are in the ledger.
    - more: gets stored rows, and returns further requests for the same accounts.
    - ahead, total: number of earlier requests, and of all, for callers that request in parts.
    - score: returns the learner's log-probs of tokens under the policy; None loads a learner.
    """
    accounts = {key: account_of(*key) for key in _accounts(requested)}
    missing = _lacking(requested, accounts)
    stats = SamplingStats()
    for (policy, _), nth in _accounts(missing).items():
        refuse_leaked_problems(policy.scaffold, (missing[i].problem for i in nth))
    if missing and adapter is not None and not adapter.folder.is_dir():
        raise weights_left(adapter.name, f"{len(missing)} of its rollouts are not in the ledger")

    def sample_now(now: Sequence[RolloutRequest], left: int = 0) -> None:
        before = ahead + len(requested) - len(now) - left
        stats.add(_sampled(requested, now, accounts, adapter, model, lora_rank, more, before, total, score))

    def settle(mine: Sequence[RolloutRequest]) -> None:
        """Check rollouts of these problems that a killed process stored but did not check."""
        problems = {one.problem_id for one in mine}
        for (policy, sampling), account in accounts.items():
            for shard in ledger().unchecked(account):
                rows = read_shard(shard).to_pylist()
                if problems.issuperset(row["problem_id"] for row in rows):
                    weights, engine = (shard.name,), rows[0]["engine"].partition(" ")[0]
                    first = _FirstTokens.of(weights, policy, engine, adapter, score)
                    first.admit([(sampling, row) for row in rows], [shard])

    while missing:
        shared = {key: nth for key, nth in _accounts(missing).items() if key[0].adapter != str(making())}
        if not shared:  # a training's lease also covers the rollouts of its own adapter
            settle(missing)
            if now := _lacking(missing, accounts):
                sample_now(now)
            break
        lease = {key: f"rollouts-{accounts[key].policy}-{accounts[key].sampling}" for key in shared}
        wanted = {lease[key]: sorted({missing[i].problem_id for i in nth}) for key, nth in shared.items()}
        tell = partial(progress, 0, len(requested), "rollouts", event="noted")
        with leases_of(store().root).claimed(wanted, lambda who: tell(who), whole=more is not None) as mine:  # noqa: B023
            free = [one for one in missing if one.problem_id in mine.get(lease.get((one.policy, one.sampling), ""), ())]
            settle(free)
            now = _lacking(free, accounts)
            if more and (came := [one for one in free if one not in now]):
                now += more(list(zip(came, entered(came).to_pylist(), strict=True)))
            if now:
                sample_now(now, len(missing) - len(free))
        missing = _lacking([one for one in missing if one not in free], accounts)
    return stats


def _lacking(
    requested: Sequence[RolloutRequest], accounts: Mapping[tuple[Policy, Sampling], Account]
) -> list[RolloutRequest]:
    wanted = _accounts(requested).items()
    lacking = [ledger().entries(accounts[key]).lacking(ledger_keys(requested, nth)) for key, nth in wanted]
    return [requested[i] for i in sorted(chain.from_iterable(lacking))]


def _sampled(
    requested: Sequence[RolloutRequest],
    missing: Sequence[RolloutRequest],
    accounts: dict[tuple[Policy, Sampling], Account],
    adapter: ServedAdapter | None,
    model: BaseModel,
    lora_rank: int,
    more: Callable[[Rows], Sequence[RolloutRequest]] | None,
    before: int,
    total: int | None,
    score: Score | None,
) -> SamplingStats:
    """Sample these requests and store the rollouts. before: number of requested rollouts that exist already."""
    book, tools, stats, leases = ledger(), toolbox(), SamplingStats(), leases_of(store().root)
    kv_cache = missing[0].sampling.kv_cache
    sampled_before = tools.samples(model.sha256, kv_cache)
    generator, graders = tools.generator(model.sha256, lora_rank, kv_cache), tools.graders()
    if not sampled_before:
        how = f"sampled by {generator.name} {generator.version}: {generator.serving}"
        progress(0, len(requested), "rollouts", how, event="noted")
    if more is None:
        progress(before, total or len(requested), "rollouts", SAMPLING)
    began, counter = time.perf_counter(), meter()
    weights = model.sha256, kv_cache, adapter and served_name(adapter)
    batch_size = None if model.served else tools.batch_size
    first = _FirstTokens.of(weights, missing[0].policy, generator.name, adapter, score)

    def admit(request: Sequence[RolloutRequest], requests: Sequence[Request]) -> int:
        whole = batch_size is not None
        return (
            len(request) if counter is None else counter.admit(requests, [w.policy.arm for w in request], whole=whole)
        )

    def enter(rows: Rows) -> None:
        if counter is not None:
            counter.charge([row for _, row in rows])
        held = _enter(book, rows, accounts, unchecked=first.score is not None)
        stats.gap = max(stats.gap, first.admit([(request.sampling, row) for request, row in rows], held))
        leases.check()
        stats.seconds = time.perf_counter() - began
        stats.unanswered += sum(row["verdict"] == "no_answer" for _, row in rows)
        for policy, _ in accounts:
            graders.refuse_broken(policy.scaffold.answer_kind)

    def keep(rows: Rows) -> Sequence[RolloutRequest]:
        enter(rows)
        if more is None:
            rate = f"{stats.tokens / stats.seconds:,.0f} tokens/s"
            if stats.unanswered > MANY_UNANSWERED * stats.rollouts:
                rate += f" · {stats.unanswered / stats.rollouts:.0%} without an answer"
            progress(before + stats.rollouts, total or len(requested), "rollouts", rate)
        if counter is not None:
            counter.check()
        return more(rows) if more else ()

    if more is None and batch_size is not None:
        sample(missing, generator, graders, adapter, keep, admit, batch_size=batch_size, stats=stats)
    else:
        linger = FLUSH_SECONDS if more is None else LINGER_SECONDS
        LiveSampling(generator, graders, keep, admit, stats, linger).run(missing, adapter)
    stats.seconds = time.perf_counter() - began
    return stats


@dataclass(slots=True)
class _FirstTokens:
    """The first rollouts after a change of weights, until there are enough to check them. weights: identity of the
    engine's weights: model, KV cache, adapter. score: gives the learner's log-probs; None after the check, or if no
    check is possible. loaded: the learner was loaded for this check and will be freed."""

    weights: tuple[object, ...]
    who: str
    engine: str
    score: Score | None
    loaded: bool
    rows: list[tuple[Sampling, dict[str, object]]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        weights: tuple[object, ...],
        policy: Policy,
        engine: str,
        adapter: ServedAdapter | None,
        score: Score | None,
    ) -> "_FirstTokens":
        """Return the unfinished check of the engine's weights, or begin one. If there is no learner, load one before
        the engine samples, because loading changes torch's defaults for a moment."""
        tools, who = toolbox(), f"{policy.arm} at step {policy.step}"
        if isinstance(tools.first, _FirstTokens) and tools.first.weights == weights:
            return tools.first
        tools.first, loaded = None, score is None
        try:
            score = score or tools.scorer(policy.model.sha256, adapter and adapter.folder)
        except UserError as error:
            why = f"{who}: what {engine} samples from is not checked: {error}"
            progress(0, 0, "rollouts", why, event="noted")
        tools.first = cls(weights, who, engine, score, loaded)
        return tools.first

    def admit(self, rows: Sequence[tuple[Sampling, dict[str, object]]], held: Sequence[Path]) -> float:
        """Check that rows were sampled with the right weights, and move their shards into the ledger. Return the
        difference of log-probs that was measured, or 0. If the engine sampled with other weights, delete the shards and
        raise UserError."""
        try:
            gap = self._gap(rows)
        except Parked:
            raise
        except UserError:
            for shard in held:
                shard.unlink()
            raise
        for shard in held:
            ledger().admit(shard)
        return gap

    def _gap(self, rows: Sequence[tuple[Sampling, dict[str, object]]]) -> float:
        if self.score is None:
            return 0.0
        self.rows += rows
        if (sampled := few(self.rows)) is None:
            return 0.0
        toolbox().first = None
        limits = EXACT if toolbox().exact else ROUNDED
        gap = refuse_other_weights(sampled, self.score, limits, self.who, self.engine)
        toolbox().first, self.score, self.rows = self, None, []
        if self.loaded:
            release_memory()
        return gap


def refuse_other_rewards(training: Training) -> None:
    """Raise UserError if a training that would start from step 0 already has rollouts with rewards of another grader or
    other overrides. The weights of its steps would differ from those that sampled the rollouts."""
    now = toolbox().grader.version
    accounts = [about for _, about in ledger().accounts() if about.get("adapter") == str(training)]
    if before := sorted({str(was) for one in accounts if (was := one.get("rewarded_by", now)) != now}):
        raise UserError(
            f"{training}: its rollouts in the ledger were graded by {', '.join(before)}, and grader {now} would train"
            f" other weights. Move away the {len(accounts)} folders in {store().root / 'ledger'} whose about.json names"
            " this training, or use the earlier grader with its overrides again"
        )


def weights_left(whose: str, why: str) -> UserError:
    return UserError(
        f"{whose}: its weights are not in this copy of the study, and {why}. Run this command where the weights are, or"
        " copy them from there with `varband export study`"
    )


def _enter(
    book: Ledger, rows: Rows, accounts: dict[tuple[Policy, Sampling], Account], *, unchecked: bool
) -> list[Path]:
    """Store one shard per account, because a batch may mix training and held-out rollouts. Return unchecked shards."""
    shards = []
    for key, account in accounts.items():
        part = [row for request, row in rows if (request.policy, request.sampling) == key]
        if part:
            table = pa.Table.from_pylist(part, schema=LEDGER)
            shards.append(book.append(account, table, about(*key), unchecked=unchecked))
    return shards if unchecked else []


def _accounts(requested: Sequence[RolloutRequest]) -> dict[tuple[Policy, Sampling], list[int]]:
    found: dict[tuple[Policy, Sampling], list[int]] = {}
    for nth, request in enumerate(requested):
        found.setdefault((request.policy, request.sampling), []).append(nth)
    return found


def ledger_keys(requested: Sequence[RolloutRequest], nth: Sequence[int] | None = None) -> pa.Table:
    """Return the keys for storage.ledger.Entries, with the golds. nth: indices of requests; None means all."""
    nth = range(len(requested)) if nth is None else nth
    return pa.table(
        {
            "problem_id": pa.array([requested[i].problem_id for i in nth], pa.string()),
            "rollout": pa.array([requested[i].rollout for i in nth], pa.int32()),
            "wanted_gold": pa.array([requested[i].gold for i in nth], pa.string()),
            "nth": pa.array(nth, pa.int64()),
        }
    )


def entered(
    requested: Sequence[RolloutRequest], schema: pa.Schema = LEDGER, entries: Entries | None = None
) -> pa.Table:
    """Return the ledger's rows of these requests, in order, parsed by their policies' scaffolds and graded by the
    active grader with the requested golds. schema: LEDGER, or a part of it. entries: those of the only account."""
    read = [name for name in LEDGER.names if name in schema.names or name not in FOR_TRAINING]
    parts = []
    for key, nth in _accounts(requested).items():
        rows = (entries or ledger().entries(account_of(*key))).rows(ledger_keys(requested, nth), read)
        if rows is not None:
            judged = as_read_by(rows, key[0], rows["wanted_gold"].to_pylist())
            parts.append(judged.select(schema.names).cast(schema).append_column("nth", rows["nth"]))
    table = pa.concat_tables(parts) if parts else None
    if table is None or table.num_rows != len(requested):
        raise UserError(f"the ledger has only {table.num_rows if table else 0} of {len(requested)} rollouts: run again")
    return (table if len(parts) == 1 else table.sort_by("nth")).drop(["nth"])


def as_read_by(rows: pa.Table, policy: Policy, golds: Sequence[str]) -> pa.Table:
    """Return ledger rows with trace, tag validity and verdict by the policy's scaffold, the active grader and these
    golds. So a changed parser or a corrected gold needs no new sampling. Columns: those of `rows`, and `reading`."""
    scaffold = policy.scaffold
    parsed = [scaffold.parse(text) for text in rows["completion"].to_pylist()]
    for name in ("trace", "tag_valid"):
        rows = _with(rows, name, [getattr(p, name) for p in parsed])
    read_for = zip(rows["reading"].to_pylist(), rows["gold"].to_pylist(), golds, strict=True)
    stands = [reading == scaffold.reading and gold == wanted for reading, gold, wanted in read_for]
    judged = actively_graded(_with(rows, "gold", golds), scaffold, stands)
    return _with(judged, "reading", [scaffold.reading] * rows.num_rows)


def _with(rows: pa.Table, name: str, values: Sequence[object]) -> pa.Table:
    """Replace the values of a column of LEDGER."""
    field = LEDGER.field(name)
    return rows.set_column(rows.column_names.index(name), field, pa.array(values, field.type))
