"""The budget wall: what is spent is counted as it is spent, the wall is never crossed, nothing is paid for twice."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from storage.artifacts.schemas import Rollouts
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.spending import Journal, charges, spending_by_arm
from tasks.domain.budget import Budget, Prices, TokenPrice
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import Scaffold
from tasks.engines.hardware import EngineName, Hardware
from tasks.engines.protocols import Completion, Request
from tasks.engines.toolbox import Toolbox
from tasks.metering import BudgetExceeded, Meter, metered
from tasks.rollouts import account_of, ensure_rollouts, entered, requests_for
from tasks.stage import Progress, Ref, Session, session, stage

MODEL = BaseModel(name="fake", sha256="f" * 64)
POLICY = Policy(arm="panel", model=MODEL)
SAMPLING = Sampling(max_tokens=40, seed=5)
PROMPT, COMPLETION = 10, 20
PROBLEMS = pa.table(
    {"problem_id": ["a", "b", "c"], "source": ["s"] * 3, "problem": ["1+1?", "2+2?", "3+3?"], "gold": ["2", "4", "6"]}
)


class CountingGenerator:
    """Every prompt takes PROMPT tokens, every completion COMPLETION of the 40 that it may take; half are right."""

    name, version, serving = "counting", "1", "none"

    def __init__(self) -> None:
        self.sampled: list[int] = []

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        return tuple(range(PROMPT))

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        queue = requests if isinstance(requests, deque) else deque(requests)
        while queue:
            request = queue.popleft()
            self.sampled.append(request.seed)
            text = f"<answer>{2 if request.seed % 2 else 9}</answer>"
            logprobs_T = np.zeros(COMPLETION, np.float32)
            yield Completion(request.key, text, list(range(COMPLETION)), logprobs_T, "stop")

    def close(self) -> None: ...


@stage(Rollouts, version=99)
def sample_counted(*, group_size: int) -> pa.Table:
    requested = requests_for(PROBLEMS, POLICY, SAMPLING, range(group_size))
    ensure_rollouts(requested, None, MODEL, 0)
    return entered(requested).select(Rollouts.schema.names)


def attempt(
    root: Path,
    budget: str | None,
    generator: CountingGenerator,
    *,
    batch_size: int | None = 6,
    prices: Prices | None = None,
    group_size: int = 16,
    month: Budget | None = None,
) -> tuple[Ref, Meter]:
    """One attempt of a run that wants 3 × group_size rollouts."""
    store = Store(root)
    store.prepare()
    tools = Toolbox(Hardware(batch_size=batch_size), {MODEL.sha256: root})
    tools._open[("generator", "transformers", str(root))] = generator
    object.__setattr__(tools, "hardware", Hardware(batch_size=batch_size, engine="transformers"))
    meter = Meter(Journal(root, "toy-1234"), Budget.parse(budget), prices or Prices(), month=month or Budget())
    try:
        current = Session(store, tools, listener=meter.listening(lambda _: None))
        with metered(meter), session(current):
            return sample_counted(group_size=group_size), meter
    finally:
        tools.close()


def test_the_wall_is_not_crossed_and_what_was_done_is_kept(tmp_path: Path) -> None:
    generator = CountingGenerator()
    with pytest.raises(BudgetExceeded) as wall:
        attempt(tmp_path, "tokens=1000", generator)
    # a batch of 6 may take 6 × (10 + 40) = 300 tokens and takes 180: batches start at 0, 180, 360, 540; at 720 none fits
    assert len(generator.sampled) == 24
    assert Journal(tmp_path, "toy-1234").spent().tokens == 720
    assert wall.value.exit_code == 75
    assert len(Ledger(tmp_path).keys(account_of(POLICY, SAMPLING))) == 24


def test_a_batch_is_begun_by_what_such_rollouts_take_and_not_by_the_most_that_they_may_take(tmp_path: Path) -> None:
    """A batch of 36 takes 36 × 30 = 1,080 tokens and may take 1,800. Once one is measured the next is expected to take
    36 × 10 + 20 × (36 + 3 × 6) = 1,440, which a limit of 2,600 holds beside the first; after two it holds no third."""
    generator = CountingGenerator()
    with pytest.raises(BudgetExceeded, match="the next 36 rollouts may take more"):
        attempt(tmp_path, "tokens=2600", generator, batch_size=36, group_size=48)
    assert len(generator.sampled) == 72 and Journal(tmp_path, "toy-1234").spent().tokens == 2160


@pytest.mark.parametrize("batch_size", [6, None])
def test_raising_the_budget_goes_on_with_nothing_sampled_twice(tmp_path: Path, batch_size: int | None) -> None:
    generator = CountingGenerator()
    for budget in ("tokens=700", "tokens=1100"):
        with pytest.raises(BudgetExceeded):
            attempt(tmp_path / "walled", budget, generator, batch_size=batch_size)
    ref, meter = attempt(tmp_path / "walled", "tokens=5000", generator, batch_size=batch_size)
    undisturbed, _ = attempt(tmp_path / "free", None, CountingGenerator(), batch_size=batch_size)
    assert len(generator.sampled) == len(set(generator.sampled)) == 48
    assert meter.spent.tokens == 48 * (PROMPT + COMPLETION)
    assert Store(tmp_path / "walled").read(ref).equals(Store(tmp_path / "free").read(undisturbed))


def test_a_reused_artifact_costs_nothing_even_with_no_budget_left(tmp_path: Path) -> None:
    attempt(tmp_path, None, CountingGenerator())
    generator = CountingGenerator()
    attempt(tmp_path, "tokens=1", generator)
    assert generator.sampled == []


def test_money_is_tokens_by_arm_and_hours_by_device(tmp_path: Path) -> None:
    """48 rollouts × (10 prompt at 1 $/M + 20 completion at 4 $/M) = 0.00432 $; time at 3600 $/h is 1 $ a second."""
    prices = Prices(tokens={"panel": TokenPrice(1.0, 4.0)}, devices={"cpu": 3600})
    _, meter = attempt(tmp_path, None, CountingGenerator(), prices=prices)
    seconds = meter.spent.gpu_hours * 3600
    assert seconds > 0
    assert meter.spent.usd == pytest.approx(48 * (10 * 1 + 20 * 4) / 1e6 + seconds)


def test_hours_are_those_of_every_gpu_of_the_arm_and_none_where_another_host_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour of rollouts and of training under 2 GPUs for sampling and 3 for the learner: 1.5 GPU-hours each."""
    moment = 0.0
    monkeypatch.setattr("tasks.metering.time.monotonic", lambda: moment)
    engines: dict[EngineName, tuple[float, float]] = {"vllm": (1.5, 1.5), "openai": (0.0, 1.5), "tinker": (0.0, 0.0)}
    for engine, (sampling, training) in engines.items():
        hardware = Hardware(engine=engine, tensor_parallel=2, processes=3)
        for kind, hours in (("rollouts", sampling), ("searches", sampling), ("training", training)):
            meter = Meter(Journal(tmp_path, f"{engine}-{kind}"), hardware=hardware)
            listener, ref = meter.listening(lambda _: None), Ref(kind, "0" * 16)
            listener(Progress("started", kind, ref))
            moment += 1800
            listener(Progress("made", kind, ref))
            assert meter.spent.gpu_hours == pytest.approx(hours)


def test_an_update_that_a_service_computes_is_paid_before_it_is_sent(tmp_path: Path) -> None:
    """60,000 tokens at 10 $/M are 0.6 $: the second batch does not fit 1 $, and is not charged."""
    prices = Prices(tokens={"*": TokenPrice(1.0, 4.0, 10.0)})
    meter = Meter(Journal(tmp_path, "run"), Budget(usd=1.0), prices, Hardware(engine="tinker"))
    for _ in range(2):  # once by its key
        meter.pay_for_training("panel", 60_000, "model/1/0")
    with pytest.raises(BudgetExceeded, match="the next update takes more"):
        meter.pay_for_training("panel", 60_000)
    assert (meter.spent.usd, meter.spent.tokens) == (pytest.approx(0.6), 60_000)
    assert Meter(Journal(tmp_path, "run")).spent == meter.spent and meter.lengths == {}


def test_what_was_counted_is_what_the_ledger_holds(tmp_path: Path) -> None:
    attempt(tmp_path, None, CountingGenerator())
    rows = Ledger(tmp_path).rows(account_of(POLICY, SAMPLING))
    assert rows is not None
    entered_tokens = sum(rows["num_tokens"].to_pylist()) + sum(rows["num_prompt_tokens"].to_pylist())
    assert sum(charges(tmp_path)["tokens"].to_pylist()) == entered_tokens
    by_arm = spending_by_arm(tmp_path).to_pylist()
    panel = next(row for row in by_arm if row["arm"] == "panel")
    right = sum(rows["correct"].to_pylist())
    assert (panel["rollouts"], panel["correct"]) == (48, right)
    assert panel["tokens_per_correct"] == (None if right == 0 else entered_tokens / right)


SECRET = "sk-planted-0123456789abcdef"


def test_a_planted_key_is_in_no_file_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger, artifacts, manifests, run records, spending: none of them holds what the environment holds."""
    for name in ("VARBAND_OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PREFECT_API_AUTH_STRING"):
        monkeypatch.setenv(name, SECRET)
    attempt(tmp_path, "tokens=1e6", CountingGenerator())
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) >= 4
    assert [p for p in files if SECRET.encode() in p.read_bytes()] == []
