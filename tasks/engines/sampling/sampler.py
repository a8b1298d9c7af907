"""Wanted rollouts in, graded rows out: renders, samples, grades, in batches that are made durable one by one.

Knows neither the ledger nor the store: `keep` is called with each batch of rows before the next one is sampled.
`sample` works through a list, `LiveSampling` takes more requests while it works, `stream` shows one completion as it
is written.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Condition

import numpy as np

from storage.artifacts.fingerprint import derived_seed
from storage.errors import Parked
from tasks.domain.policies import Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import Scaffold
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.protocols import Completion, Decoding, Finish, Generator, Request

#: While streaming, finished rollouts wait at most this long, or in this number, before they are made durable.
FLUSH_SECONDS, FLUSH_ROWS = 3.0, 512


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """One rollout that somebody asks for. `request_seed` is a function of its identity. begun: what its completion goes
    on from, which is no part of it. left: tokens that it may have, where that is fewer than its sampling says."""

    problem_id: str
    source: str
    problem: str
    gold: str
    rollout: int
    policy: Policy
    sampling: Sampling
    request_seed: int
    begun: str = ""
    left: int | None = None

    @property
    def max_tokens(self) -> int:
        return self.sampling.max_tokens if self.left is None else self.left


@dataclass(slots=True)
class SamplingStats:
    """What sampling took: for the progress line and the manifest's notes, not for results. gap: the largest of
    same_policy.py, in nats."""

    rollouts: int = 0
    tokens: int = 0
    seconds: float = 0.0
    grading_seconds: float = 0.0
    gap: float = 0.0
    _prompts: dict[tuple[Scaffold, str, str], tuple[int, ...]] = field(default_factory=dict)

    def add(self, other: SamplingStats) -> None:
        self.rollouts += other.rollouts
        self.tokens += other.tokens
        self.seconds += other.seconds
        self.grading_seconds += other.grading_seconds
        self.gap = max(self.gap, other.gap)

    def note(self, generator: Generator) -> dict[str, str]:
        rate = self.tokens / self.seconds if self.seconds else 0.0
        return {
            **named(generator),
            "sampled_rollouts": str(self.rollouts),
            "sampled_tokens": str(self.tokens),
            "sampling_seconds": f"{self.seconds:.2f}",
            "tokens_per_second": f"{rate:.0f}",
            "grading_seconds": f"{self.grading_seconds:.2f}",
            "logprob_gap": f"{self.gap:.2g}",
        }


def named(generator: Generator) -> dict[str, str]:
    """Which engine sampled and how, for the manifest's notes."""
    return {"engine": f"{generator.name} {generator.version}", "serving": generator.serving}


def sample(
    requested: Sequence[RolloutRequest],
    generator: Generator,
    graders: Graders,
    adapter: ServedAdapter | None,
    keep: Callable[[list[tuple[RolloutRequest, dict[str, object]]]], None],
    *,
    batch_size: int | None,
    stats: SamplingStats,
    admit: Callable[[Sequence[RolloutRequest], Sequence[Request]], int] | None = None,
) -> None:
    """Sample, grade and keep every wanted rollout, in the order of `requested`.

    batch_size: rollouts per engine call; a batch is kept whole, so that a run killed half way repeats whole batches and
    meets the same batches again. None: one call for all, graded and kept as they finish, beside the sampling.
    admit: asked before each engine call how many of its requests may be sampled; raises for none.
    """
    start = 0
    while start < len(requested):
        batch = requested[start : start + (batch_size or len(requested))]
        requests = [request_of(i, asked, generator, stats) for i, asked in enumerate(batch)]
        if admit is not None:
            requests = requests[: admit(batch, requests)]
        start += len(requests)

        def keep_them(
            done: list[Completion], batch: Sequence[RolloutRequest] = batch, asked: list[Request] = requests
        ) -> None:
            keep(rows_of(done, batch, asked, generator, graders, stats))

        completions = generator.generate(requests, adapter)
        if batch_size is None:

            def item(done: Completion, batch: Sequence[RolloutRequest] = batch) -> GradeItem:
                return _item(done, batch[done.key])

            _beside(_durable_batches(judged_ahead(completions, item, graders), whole=False), keep_them)
            continue
        for done in _durable_batches(completions, whole=True):
            keep_them(sorted(done, key=lambda c: c.key))


def _beside(batches: Iterator[list[Completion]], work: Callable[[list[Completion]], None]) -> None:
    """Work on each batch in a thread while the next one is made: an engine that waits for graders and files is idle.

    One batch at a time, in order. If one fails the batch after it, which is paid for, is tried too before its error
    is raised.
    """
    with ThreadPoolExecutor(1) as thread:
        pending: Future[None] | None = None
        try:
            for batch in batches:
                failed = pending.exception() if pending else None
                pending = thread.submit(copy_context().run, work, batch)
                if failed:
                    raise failed
        finally:
            if pending:
                pending.result()


def judged_ahead(
    completions: Iterator[Completion], item: Callable[[Completion], GradeItem], graders: Graders
) -> Iterator[Completion]:
    """`completions`, each handed to the graders as soon as they are free. They remember verdicts, and an answer that
    hangs its grader does so while others are still written. What fails here fails again where verdicts are used."""
    with ThreadPoolExecutor(1) as thread:
        fresh: list[GradeItem] = []
        asked: Future[object] | None = None
        for completion in completions:
            fresh.append(item(completion))
            if asked is None or asked.done():
                asked, fresh = thread.submit(graders.grade, fresh), []
            yield completion


def _item(completion: Completion, asked: RolloutRequest) -> GradeItem:
    return GradeItem(asked.policy.scaffold, completion.text, asked.gold, completion.finish)


def request_of(key: int, asked: RolloutRequest, generator: Generator, stats: SamplingStats) -> Request:
    scaffold = asked.policy.scaffold
    name = scaffold, asked.problem_id, asked.begun
    cached = stats._prompts.get(name)
    if cached is None:
        prompt = scaffold.prompt(asked.problem)
        cached = generator.encode(
            prompt, chat=scaffold.chat, enable_thinking=scaffold.enable_thinking, begun=asked.begun
        )
        stats._prompts[name] = cached
    s = asked.sampling
    return Request(
        key,
        cached,
        asked.request_seed,
        Decoding(max_tokens=asked.max_tokens, temperature=s.temperature, top_p=s.top_p, stop=scaffold.stop),
    )


def _durable_batches(completions: Iterator[Completion], *, whole: bool) -> Iterator[list[Completion]]:
    """What finished before an engine failed is handed on first, then its error."""
    batch: list[Completion] = []
    began, failure = time.monotonic(), None
    try:
        for completion in completions:
            batch.append(completion)
            if not whole and (len(batch) >= FLUSH_ROWS or time.monotonic() - began > FLUSH_SECONDS):
                yield batch
                batch, began = [], time.monotonic()
    except Exception as error:
        failure = error
    if batch and not (whole and failure):
        yield batch
    if failure is not None:
        raise failure


def rows_of(
    completions: list[Completion],
    requested: Sequence[RolloutRequest],
    requests: Sequence[Request],
    generator: Generator,
    graders: Graders,
    stats: SamplingStats,
) -> list[tuple[RolloutRequest, dict[str, object]]]:
    """What was asked for and its row of storage.artifacts.schemas.LEDGER."""
    began = time.perf_counter()
    named = [(c, requested[c.key]) for c in completions]
    verdicts = graders.grade([_item(c, w) for c, w in named])
    stats.grading_seconds += time.perf_counter() - began
    rows: list[tuple[RolloutRequest, dict[str, object]]] = []
    for (c, w), v in zip(named, verdicts, strict=True):
        parsed = w.policy.scaffold.parse(c.text)
        total = float(np.sum(c.logprobs_T, dtype=np.float64))
        row: dict[str, object] = {
            "problem_id": w.problem_id,
            "source": w.source,
            "arm": w.policy.arm,
            "adapter": w.policy.adapter,
            "step": w.policy.step,
            "seed": w.policy.seed,
            "rollout": w.rollout,
            "completion": c.text,
            "trace": parsed.trace,
            "tag_valid": parsed.tag_valid,
            "answer": v.answer,
            "canonical": v.canonical,
            "verdict": v.verdict,
            "reason": v.reason,
            "correct": v.correct,
            "grader_version": graders.version,
            "finish": c.finish,
            "num_prompt_tokens": len(requests[c.key].prompt_ids),
            "num_tokens": len(c.token_ids),
            "logprob_sum": total if np.isfinite(total) else None,
            "gold": w.gold,
            "request_seed": w.request_seed,
            "prompt_ids": list(requests[c.key].prompt_ids),
            "token_ids": c.token_ids,
            "logprobs": c.logprobs_T,
            "engine": f"{generator.name} {generator.version}",
            "reading": w.policy.scaffold.reading,
        }
        rows.append((w, row))
    stats.rollouts += len(rows)
    stats.tokens += sum(len(c.token_ids) for c in completions)
    return rows


#: What ended waits so long for others to be made durable with.
LINGER_SECONDS = 0.1
Rows = list[tuple[RolloutRequest, dict[str, object]]]


class LiveSampling:
    """keep: makes rows durable and returns what is wanted next. admit: how many of these requests, from the first, may
    be sampled now; those at work are the first."""

    def __init__(
        self,
        generator: Generator,
        graders: Graders,
        keep: Callable[[Rows], Sequence[RolloutRequest]],
        admit: Callable[[Sequence[RolloutRequest], Sequence[Request]], int],
        stats: SamplingStats,
    ) -> None:
        self._generator, self._graders, self._keep, self._admit, self._stats = generator, graders, keep, admit, stats
        self._asked: list[RolloutRequest] = []
        self._requests: list[Request] = []
        self._held: deque[int] = deque()
        self._at_work: dict[int, None] = {}
        self._feed: deque[Request] = deque()
        self._changed = Condition()

    def run(self, first: Sequence[RolloutRequest], adapter: ServedAdapter | None) -> None:
        """Until nothing more is wanted. What ended before something failed is kept."""
        self._ask(first)
        ended: SimpleQueue[Completion | None] = SimpleQueue()
        with ThreadPoolExecutor(1) as thread:
            keeping = thread.submit(copy_context().run, self._keep_all, ended)
            try:
                self._sample(adapter, ended, keeping)
            finally:
                ended.put(None)
                keeping.result()

    def _sample(
        self, adapter: ServedAdapter | None, ended: SimpleQueue[Completion | None], keeping: Future[None]
    ) -> None:
        while self._at_work and not keeping.done():
            for completion in self._generator.generate(self._feed, adapter):
                ended.put(completion)
                if keeping.done():
                    return
            with self._changed:  # what ended last may want more
                self._changed.wait_for(lambda: self._feed or not self._at_work or keeping.done(), timeout=1.0)

    def _keep_all(self, ended: SimpleQueue[Completion | None]) -> None:
        """In a thread of its own: an engine that waits for graders and files is idle."""
        while (one := ended.get()) is not None:
            time.sleep(LINGER_SECONDS)
            some, last = [one], False
            while not ended.empty() and not last:
                if (one := ended.get()) is None:
                    last = True
                else:
                    some.append(one)
            rows = rows_of(some, self._asked, self._requests, self._generator, self._graders, self._stats)
            more = self._keep(rows)
            with self._changed:
                for completion in some:
                    del self._at_work[completion.key]
                self._ask(more)
                self._changed.notify()
            if last:
                return

    def _ask(self, wanted: Sequence[RolloutRequest]) -> None:
        """Hand on what may be sampled now. Errors: Parked where nothing may, and nothing is at work."""
        for one in wanted:
            self._held.append(len(self._asked))
            self._requests.append(request_of(len(self._asked), one, self._generator, self._stats))
            self._asked.append(one)
        if not self._held:
            return
        keys = [*self._at_work, *self._held]
        try:
            admitted = self._admit([self._asked[k] for k in keys], [self._requests[k] for k in keys])
        except Parked:
            if self._at_work:
                return
            raise
        for key in keys[len(self._at_work) : admitted]:
            self._at_work[key] = None
            self._feed.append(self._requests[key])
            self._held.popleft()


PIECE_TOKENS = 12


def stream(
    generator: Generator,
    prompt_ids: tuple[int, ...],
    decoding: Decoding,
    seed: int,
    adapter: ServedAdapter | None,
    piece_tokens: int = PIECE_TOKENS,
) -> Iterator[tuple[str, Finish | None]]:
    """(text, null) piece by piece, then ("", how it ended). The text includes the stop string that ended it."""
    ids, said, left = prompt_ids, "", decoding.max_tokens
    while left > 0:
        asked = replace(decoding, max_tokens=min(piece_tokens, left))
        request = Request(0, ids, derived_seed(seed, len(ids)), asked)
        piece = next(iter(generator.generate([request], adapter)))
        whole = said + piece.text
        end = min((i + len(s) for s in decoding.stop if (i := whole.find(s)) >= 0), default=None)
        text = whole[len(said) : end]
        yield text, None
        if end is not None or piece.finish == "stop" or not piece.token_ids:
            yield "", "stop"
            return
        said += text
        ids += tuple(piece.token_ids)
        left -= len(piece.token_ids)
    yield "", "length"
