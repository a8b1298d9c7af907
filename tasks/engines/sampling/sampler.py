"""The sampler, from requests to graded rows. The sampler writes prompts, samples, grades, and stores each batch.

Neither ledger nor store are known here: the sampler calls `keep` with each batch of rows. `sample` stores each batch
before it samples the next. `LiveSampling` stores finished rollouts during sampling, and accepts further requests.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Condition

import numpy as np

from storage.errors import Parked
from tasks.domain.policies import Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import Prompt, Scaffold
from tasks.engines.grading.graders import GradeItem, Graders
from tasks.engines.protocols import Completion, Decoding, Generator, Request

#: Finished rollouts are stored after this time or number; after LINGER_SECONDS if the next requests depend on them.
FLUSH_SECONDS, FLUSH_ROWS, LINGER_SECONDS = 3.0, 512, 0.1


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """A request for one rollout. `request_seed` depends only on the rollout's identity. begun: a given start of the
    completion, which is not stored with it. left: its token limit, if lower than that of `sampling`."""

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
    """Counts and times of sampling, for the progress line and the manifest's notes. gap: the largest difference between
    the log-probs of engine and learner (same_policy.py), in nats."""

    rollouts: int = 0
    unanswered: int = 0
    tokens: int = 0
    seconds: float = 0.0
    grading_seconds: float = 0.0
    gap: float = 0.0
    _prompts: dict[tuple[Scaffold, str, str], tuple[tuple[int, ...], Prompt]] = field(default_factory=dict)

    def add(self, other: "SamplingStats") -> None:
        self.rollouts += other.rollouts
        self.unanswered += other.unanswered
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
    """Return the engine and how it serves adapters, for the manifest's notes."""
    return {"engine": f"{generator.name} {generator.version}", "serving": generator.serving}


Rows = list[tuple[RolloutRequest, dict[str, object]]]
#: Returns how many of the first of these requests may be sampled now. It raises an error if none may be.
Admit = Callable[[Sequence[RolloutRequest], Sequence[Request]], int]


def sample(
    requested: Sequence[RolloutRequest],
    generator: Generator,
    graders: Graders,
    adapter: ServedAdapter | None,
    keep: Callable[[Rows], object],
    admit: Admit,
    *,
    batch_size: int,
    stats: SamplingStats,
) -> None:
    """Sample, grade and store every requested rollout in whole batches. A killed run repeats the same batches."""
    start = 0
    while start < len(requested):
        batch = requested[start : start + batch_size]
        requests = [request_of(i, one, generator, stats) for i, one in enumerate(batch)]
        requests = requests[: admit(batch, requests)]
        start += len(requests)
        done = sorted(generator.generate(requests, adapter), key=lambda c: c.key)
        keep(rows_of(done, batch, requests, generator, graders, stats))


def request_of(key: int, wanted: RolloutRequest, generator: Generator, stats: SamplingStats) -> Request:
    scaffold = wanted.policy.scaffold
    name = scaffold, wanted.problem_id, wanted.begun
    if name not in stats._prompts:
        ids, prompt = generator.encode(scaffold, wanted.problem, wanted.begun), scaffold.prompt(wanted.problem)
        if scaffold.chat and isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        stats._prompts[name] = ids, prompt
    ids, prompt = stats._prompts[name]
    s = wanted.sampling
    decoding = Decoding(max_tokens=wanted.max_tokens, temperature=s.temperature, top_p=s.top_p, stop=scaffold.stop)
    return Request(key, ids, wanted.request_seed, decoding, prompt)


def rows_of(
    completions: list[Completion],
    requested: Sequence[RolloutRequest],
    requests: Sequence[Request],
    generator: Generator,
    graders: Graders,
    stats: SamplingStats,
) -> Rows:
    """Return each requested rollout with its row of LEDGER (storage/ledger.py)."""
    began = time.perf_counter()
    named = [(c, requested[c.key]) for c in completions]
    verdicts = graders.grade([GradeItem(w.policy.scaffold, c.text, w.gold, c.finish) for c, w in named])
    stats.grading_seconds += time.perf_counter() - began
    rows: Rows = []
    for (c, w), v in zip(named, verdicts, strict=True):
        parsed = w.policy.scaffold.parse(c.text)
        total = float(np.sum(c.logprobs_T, dtype=np.float64)) if c.token_ids else np.nan
        num_prompt_tokens, num_tokens = c.counted or (len(requests[c.key].prompt_ids), len(c.token_ids))
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
            "num_prompt_tokens": num_prompt_tokens,
            "num_tokens": num_tokens,
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
    stats.tokens += sum(c.counted[1] if c.counted else len(c.token_ids) for c in completions)
    return rows


class LiveSampling:
    """Sampling from a queue that may grow. keep: stores rows, and returns further requests. admit: gets the running
    requests, and then the waiting ones. linger: seconds for which finished rollouts may wait for others."""

    def __init__(
        self,
        generator: Generator,
        graders: Graders,
        keep: Callable[[Rows], Sequence[RolloutRequest]],
        admit: Admit,
        stats: SamplingStats,
        linger: float = FLUSH_SECONDS,
    ) -> None:
        self._generator, self._graders, self._keep, self._admit, self._stats = generator, graders, keep, admit, stats
        self._linger = linger
        self._wanted: list[RolloutRequest] = []
        self._requests: list[Request] = []
        self._held: deque[int] = deque()
        self._at_work: dict[int, None] = {}
        self._feed: deque[Request] = deque()
        self._changed = Condition()
        self._failure: Exception | None = None
        self._over = False

    def run(self, first: Sequence[RolloutRequest], adapter: ServedAdapter | None) -> None:
        """Sample until no request is left. Rollouts that finished before an error are stored."""
        self._ask(first)
        ended: SimpleQueue[Completion | None] = SimpleQueue()
        with ThreadPoolExecutor(1) as thread:
            keeping = thread.submit(copy_context().run, self._keep_all, ended)
            try:
                self._sample(adapter, ended)
            finally:
                self._over = True
                ended.put(None)
                keeping.result()

    def _sample(self, adapter: ServedAdapter | None, ended: SimpleQueue[Completion | None]) -> None:
        while self._at_work and not self._failure:
            for completion in self._generator.generate(self._feed, adapter):
                ended.put(completion)
                if self._failure:
                    return
            ended.put(None)
            with self._changed:  # the last rollouts may lead to further requests
                self._changed.wait_for(lambda: self._feed or not self._at_work or self._failure, timeout=1.0)

    def _keep_all(self, ended: SimpleQueue[Completion | None]) -> None:
        """Store finished rollouts in a thread of its own, so that the engine does not wait for graders and files. None
        in `ended` means that the engine is idle."""
        some, due, idle = list[Completion](), 0.0, False
        while not (idle and self._over and ended.empty()):
            fresh = list[Completion | None]()
            with suppress(Empty):
                fresh.append(ended.get(timeout=max(0.0, due - time.monotonic()) if some else None))
            while not ended.empty():
                fresh.append(ended.get())
            idle = None in fresh
            due = due if some else time.monotonic() + self._linger
            some += [one for one in fresh if one is not None]
            if some and (idle or len(some) >= FLUSH_ROWS or time.monotonic() >= due):
                try:
                    self._keep_some(some)
                except Exception as error:
                    self._failure = self._failure or error
                some = []
        if self._failure:
            raise self._failure

    def _keep_some(self, some: list[Completion]) -> None:
        more = self._keep(rows_of(some, self._wanted, self._requests, self._generator, self._graders, self._stats))
        with self._changed:
            for completion in some:
                del self._at_work[completion.key]
            self._ask(more)
            self._changed.notify()

    def _ask(self, wanted: Sequence[RolloutRequest]) -> None:
        """Queue the requests that may be sampled now, even while the engine runs. Raise Parked if no request may be
        sampled and none is running."""
        for one in wanted:
            self._held.append(len(self._wanted))
            self._requests.append(request_of(len(self._wanted), one, self._generator, self._stats))
            self._wanted.append(one)
        if not self._held:
            return
        keys = [*self._at_work, *self._held]
        try:
            admitted = self._admit([self._wanted[k] for k in keys], [self._requests[k] for k in keys])
        except Parked:
            if self._at_work:
                return
            raise
        for key in keys[len(self._at_work) : admitted]:
            self._at_work[key] = None
            self._feed.append(self._requests[key])
            self._held.popleft()
