"""Wanted rollouts, made sure of: what the ledger has is reused, only the rest is sampled and entered.

Used by the stages that need rollouts (sampling, training); each promise about paying once is kept here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from storage.artifacts.fingerprint import derived_seed, restored
from storage.artifacts.kinds import Training
from storage.artifacts.kinds.experiment import LEDGER
from storage.artifacts.ref import Ref
from storage.errors import UserError
from storage.ledger import Account, Ledger
from storage.sql import query
from tasks.active_grader import actively_graded
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter, another_base
from tasks.engines.protocols import Request
from tasks.engines.sampling.live import LiveSampling, Rows
from tasks.engines.sampling.sampler import RolloutRequest, SamplingStats, sample
from tasks.former_names import SCAFFOLDS
from tasks.metering import meter
from tasks.stage import ledger, making, progress, store, toolbox


def account_of(policy: Policy, sampling: Sampling) -> Account:
    drawn = sampling.identity(policy.scaffold.stop)
    return Account.of(policy.identity(), drawn, policy.former_identity())


def about(policy: Policy, sampling: Sampling) -> dict[str, object]:
    """An account in words. rewarded_by: whose verdicts the training goes by that enters its adapter's rollouts."""
    own = isinstance(making(), Training) and policy.adapter == str(making())
    rewarded: dict[str, object] = {"rewarded_by": toolbox().grader.version} if own else {}
    return rewarded | {
        "arm": policy.arm,
        "model": policy.model.name,
        "adapter": policy.adapter,
        "step": policy.step,
        "scaffold": policy.scaffold.digest,
        **sampling.identity(policy.scaffold.stop),
    }


def served(policy: Policy, training: Ref | None) -> ServedAdapter | None:
    """The adapter behind a policy; null at step 0. Errors: UserError for one of another base model."""
    if training is None or not policy.adapter_step:
        return None
    trained_on = restored(Policy, store().manifest(training).recipe.arguments["start"]).model
    if trained_on.sha256 not in (policy.model.sha256, policy.model.formerly):
        raise another_base(f"the policy of {policy.arm}", policy.model, str(training), trained_on)
    folder = store().files(training) / f"step-{policy.adapter_step:04d}"
    return ServedAdapter(f"{training}-step-{policy.adapter_step}", folder)


def requests_for(problems: pa.Table, policy: Policy, sampling: Sampling, rollouts: range) -> list[RolloutRequest]:
    """Every (problem, rollout) asked for, problem by problem. A request's seed is a function of the rollout's
    identity: (sampling seed, problem, rollout), so that two arms and two days draw alike."""
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
) -> SamplingStats:
    """Sample what the ledger does not have. Returns what that took.

    adapter: the weights behind the policy; null for a policy whose rollouts are all in the ledger already.
    more: told of what was entered, and returns what of the same accounts is wanted besides and is not there.
    """
    book = ledger()
    accounts = {key: account_of(*key) for key in dict.fromkeys((w.policy, w.sampling) for w in requested)}
    had = {key: book.keys(account) for key, account in accounts.items()}
    missing = [w for w in requested if (w.problem_id, w.rollout) not in had[(w.policy, w.sampling)]]
    stats = SamplingStats()
    if not missing:
        return stats
    if adapter is not None and not adapter.folder.is_dir():
        raise weights_left(adapter.name, f"{len(missing)} of its rollouts are not in the ledger")
    tools = toolbox()
    first = not tools.samples(model.sha256)
    generator, graders = tools.generator(model.sha256, lora_rank), tools.graders()
    if first:
        how = f"sampled by {generator.name} {generator.version}: {generator.serving}"
        progress(0, len(requested), "rollouts", how, event="noted")
    began = time.perf_counter()

    counter = meter()

    def admit(asked: Sequence[RolloutRequest], requests: Sequence[Request]) -> int:
        whole = tools.batch_size is not None
        return len(asked) if counter is None else counter.admit(requests, [w.policy.arm for w in asked], whole=whole)

    def enter(rows: Rows) -> None:
        if counter is not None:
            counter.charge([row for _, row in rows])
        _enter(book, rows, accounts)
        stats.seconds = time.perf_counter() - began

    def keep(rows: Rows) -> None:
        enter(rows)
        done = len(requested) - len(missing) + stats.rollouts
        progress(done, len(requested), "rollouts", f"{stats.tokens / stats.seconds:,.0f} tok/s")
        if counter is not None:
            counter.check()

    def keep_and_ask(rows: Rows) -> Sequence[RolloutRequest]:
        enter(rows)
        if counter is not None:
            counter.check()
        return more(rows) if more else ()

    if more is None:
        sample(missing, generator, graders, adapter, keep, batch_size=tools.batch_size, stats=stats, admit=admit)
    else:
        LiveSampling(generator, graders, keep_and_ask, admit, stats).run(missing, adapter)
    stats.seconds = time.perf_counter() - began
    return stats


def refuse_other_rewards(training: Training) -> None:
    """For a training that is made from its beginning. Errors: UserError if it was made before under another grader or
    other overrides: its weights will be others, and the rollouts of the former ones would be taken for theirs."""
    now = toolbox().grader.version
    told = [told for _, told in ledger().accounts() if told.get("adapter") == str(training)]
    if before := sorted({str(was) for one in told if (was := one.get("rewarded_by", now)) != now}):
        raise UserError(
            f"{training}: the ledger holds rollouts of it as grader {', '.join(before)} rewarded it, and grader {now}"
            f" makes other weights: move away the {len(told)} folders of {store().root / 'ledger'} whose about.json"
            " names it, or go back to that grader and its overrides"
        )


def weights_left(whose: str, why: str) -> UserError:
    return UserError(
        f"{whose}: its weights are not in this copy of the study, and {why}; run this where they are, or bring them"
        " with `varband export` from there"
    )


def _enter(book: Ledger, rows: Rows, accounts: dict[tuple[Policy, Sampling], Account]) -> None:
    """One shard for each account that a batch touches: a training step and its held-out share an engine call."""
    for key, account in accounts.items():
        part = [row for asked, row in rows if (asked.policy, asked.sampling) == key]
        if part:
            book.append(account, pa.Table.from_pylist(part, schema=LEDGER), about(*key))


def entered(requested: Sequence[RolloutRequest]) -> pa.Table:
    """The ledger's rows of exactly these rollouts, in this order, as their policies' scaffolds read them and the
    session's grader judges them against the golds asked for. Schema: LEDGER."""
    parts = []
    for key in dict.fromkeys((w.policy, w.sampling) for w in requested):
        wanted = [(i, w) for i, w in enumerate(requested) if (w.policy, w.sampling) == key]
        rows = ledger().read(account_of(*key), {(w.problem_id, w.rollout) for _, w in wanted})
        asked = pa.table(
            {
                "problem_id": [w.problem_id for _, w in wanted],
                "rollout": pa.array([w.rollout for _, w in wanted], pa.int32()),
                "wanted_gold": [w.gold for _, w in wanted],
                "place": pa.array([i for i, _ in wanted], pa.int64()),
            }
        )
        if rows is not None:
            found = query(
                "select rows.*, wanted_gold, place from rows join asked using (problem_id, rollout) order by place",
                rows=rows,
                asked=asked,
            )
            read = as_read_by(found, key[0], found["wanted_gold"].to_pylist())
            parts.append(read.append_column("place", found["place"]))
    table = pa.concat_tables(parts) if parts else None
    if table is None or table.num_rows != len(requested):
        raise UserError(f"the ledger holds {table.num_rows if table else 0} of {len(requested)} rollouts: run again")
    return table.sort_by("place").drop(["place"]).cast(LEDGER)


def as_read_by(rows: pa.Table, policy: Policy, golds: Sequence[str]) -> pa.Table:
    """Ledger rows of a policy with trace, tag validity and verdicts as its scaffold reads them and the session's grader
    judges them against these golds: what was sampled under an earlier rule, or for a gold that was corrected since, is
    not sampled again for a new one. Schema: LEDGER."""
    scaffold, at = policy.scaffold, LEDGER.names.index("reading")
    parsed = [scaffold.parse(text) for text in rows["completion"].to_pylist()]
    for name in ("trace", "tag_valid"):
        values = pa.array([getattr(p, name) for p in parsed], LEDGER.field(name).type)
        rows = rows.set_column(rows.column_names.index(name), LEDGER.field(name), values)
    if "reading" not in rows.column_names:
        rows = rows.append_column("reading", pa.nulls(rows.num_rows, pa.string()))
    rows = rows.select(LEDGER.names)
    unsaid = scaffold.reading if scaffold.digest == SCAFFOLDS.get(policy.arm) else ""
    read_by = [reading or unsaid for reading in rows["reading"].to_pylist()]
    stands = [
        r == scaffold.reading and g == gold for r, g, gold in zip(read_by, rows["gold"].to_pylist(), golds, strict=True)
    ]
    gold_at = LEDGER.names.index("gold")
    rows = rows.set_column(gold_at, LEDGER.field(gold_at), pa.array(golds, pa.string()))
    judged = actively_graded(rows, scaffold, stands)
    return judged.set_column(at, LEDGER.field(at), pa.array([scaffold.reading] * rows.num_rows)).cast(LEDGER)
