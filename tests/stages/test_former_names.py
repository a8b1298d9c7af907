"""A store made before scaffolds were held by content (commit 945f2b3): what it holds is found under its former names.

`tests/golden/former_names.json` is what that commit called the artifacts and accounts that `asked` asks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.artifacts.kinds import Pool, Rollouts, Splits
from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger
from tasks.domain.arms import ARMS
from tasks.domain.grading.grading import GRADER_VERSION
from tasks.domain.grpo.types import LearnerConfig
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.problems.sources import SourceSpec
from tasks.domain.scaffolds import PANEL, Scaffold
from tasks.engines.protocols import Completion, Request
from tasks.engines.toolbox import Toolbox
from tasks.former_names import SCAFFOLDS
from tasks.measures.bands import classify_bands
from tasks.pool import PoolPolicy, build_pool
from tasks.regrading import regrade_rollouts
from tasks.rollouts import account_of
from tasks.sampling import sample_rollouts
from tasks.splits import split_pool
from tasks.stage import Session, session
from tasks.synthetic_pool import make_synthetic_pool
from tasks.training import train_adapter

FORMER: dict[str, str] = json.loads((Path(__file__).parents[1] / "golden" / "former_names.json").read_text())
#: Its files are called otherwise today; then they were the digest `aaaa…`.
MODEL = BaseModel(name="a model", sha256="c" * 64, formerly="a" * 64)
PUBLISHED = replace(PANEL)  # PANEL is what it was then, or these tests are of no use: see the first of them
LEARNER = LearnerConfig(steps=3, groups_per_step=2, group_size=4, learning_rate=1e-3, lora_rank=4, lora_alpha=4)
DRAW, EVALUATION = Sampling(max_tokens=32, seed=2), Sampling(max_tokens=32, temperature=0.7, seed=3)


class Holding(Store):
    """A store that says it has these artifacts."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        super().__init__(root)
        self.names = set(names)

    def fresh(self, ref: Ref) -> bool:
        return str(ref) in self.names


def asked(store: Store, policy: Policy, learner: LearnerConfig = LEARNER) -> dict[str, Ref]:
    with session(Session(store, Toolbox(), planning=True)):
        pool = build_pool(sources=(SourceSpec("amc", "b" * 64),), policy=PoolPolicy(limit=9, grader="3"))
        splits = split_pool(pool=pool, heldout_per_source=1, seed=0)
        drawn = {"pool": pool, "splits": splits, "sampling": EVALUATION, "group_size": 4}
        screening = sample_rollouts(**drawn, policy=policy)
        bands = classify_bands(rollouts=screening)
        trained = {"pool": pool, "splits": splits, "learner": learner, "rollouts": DRAW, "evaluation": EVALUATION}
        training = train_adapter(**trained, evaluation_group_size=2, bands=bands, start=policy)
        after = replace(policy, adapter=str(training), adapter_step=3, step=3)
        evaluated = sample_rollouts(**drawn, policy=after, split="heldout", training=training, lora_rank=4)
        chained = train_adapter(**trained, evaluation_group_size=2, bands=None, start=after, init=training)
    return {
        "pool": pool,
        "splits": splits,
        "screening": screening,
        "bands": bands,
        "training": training,
        "evaluated": evaluated,
        "chained": chained,
    }


def found(tmp_path: Path, policy: Policy, learner: LearnerConfig = LEARNER) -> set[str]:
    """What is found of all that the former commit made."""
    refs = asked(Holding(tmp_path, list(FORMER.values())), policy, learner)
    return {name for name, ref in refs.items() if str(ref) == FORMER[name]}


def test_artifacts_are_found_under_their_former_names(tmp_path: Path) -> None:
    """All but a training that starts from another: it draws noise of its own now."""
    assert SCAFFOLDS["panel"] == PUBLISHED.digest, "the panel was reworded: give these tests a policy with the old one"
    assert found(tmp_path, Policy(arm="panel", model=MODEL)) == FORMER.keys() - {"chained", "base", "adapter", "drawn"}


def test_where_nothing_is_there_everything_has_its_name_of_today(tmp_path: Path) -> None:
    refs = asked(Store(tmp_path), Policy(arm="panel", model=MODEL))
    named = {str(ref) for ref in refs.values()}
    assert not named & set(FORMER.values())
    same = asked(Store(tmp_path), Policy(arm="panel", model=replace(MODEL, name="renamed", formerly="")))
    assert {str(ref) for ref in same.values()} == named


@pytest.mark.parametrize("name", ["template", "trace_tag", "stop"])
def test_a_former_name_stands_for_the_scaffold_of_then(tmp_path: Path, name: str) -> None:
    other = replace(PANEL, **{name: ("another",) if name == "stop" else "another {problem}"})
    assert found(tmp_path, Policy(arm="panel", model=MODEL, scaffold=other)) == {"pool", "splits"}


def test_what_a_former_name_leaves_unsaid_is_not_taken_for_granted(tmp_path: Path) -> None:
    """Another model of which nothing is known; a training with other settings."""
    assert found(tmp_path, Policy(arm="panel", model=replace(MODEL, formerly=""))) == {"pool", "splits"}
    other = found(tmp_path, Policy(arm="panel", model=MODEL), replace(LEARNER, tag_weight=0.3))
    assert other == {"pool", "splits", "screening", "bands"}


def test_a_training_that_was_begun_goes_on_under_its_former_name(tmp_path: Path) -> None:
    """Its rollouts stand in the ledger under that name, its checkpoints in that folder."""
    held = [FORMER[name] for name in ("pool", "splits", "screening", "bands")]
    policy = Policy(arm="panel", model=MODEL)
    assert str(asked(Holding(tmp_path, held), policy)["training"]) != FORMER["training"]
    (tmp_path / ".work" / FORMER["training"] / "checkpoints").mkdir(parents=True)
    assert str(asked(Holding(tmp_path, held), policy)["training"]) == FORMER["training"]


def test_the_ledger_looks_under_its_former_accounts() -> None:
    policy = Policy(arm="panel", model=MODEL)
    after = replace(policy, adapter=FORMER["training"], adapter_step=3, step=3)
    for name, account in (
        ("base", account_of(policy, EVALUATION)),
        ("adapter", account_of(after, EVALUATION)),
        ("drawn", account_of(after, DRAW)),
    ):
        assert account.former is not None
        assert f"{account.former.policy}/{account.former.sampling}" == FORMER[name]
        assert account.policy != account.former.policy


class Counting:
    """An engine that answers 7 in the form of the panel, and counts."""

    name, version, serving, sampled = "counting", "1", "none", 0

    def encode(self, prompt: str, *, chat: bool, enable_thinking: bool) -> tuple[int, ...]:
        return (len(prompt),)

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        for request in requests:
            self.sampled += 1
            text = "<mutipersonaDebate>so <answer>8</answer></mutipersonaDebate> <answer>7</answer>"
            yield Completion(request.key, text, [1, 2], np.zeros(2, np.float32), "stop")

    def close(self) -> None: ...


@dataclass
class Lab:
    store: Store
    toolbox: Toolbox
    engine: Counting
    pool: Pool
    splits: Splits

    def rows(self, scaffold: Scaffold = PANEL) -> pa.Table:
        """As a run of its own has them, whose policy has this scaffold."""
        policy = Policy(arm="panel", model=MODEL, scaffold=scaffold)
        asked = {"pool": self.pool, "splits": self.splits, "sampling": EVALUATION, "group_size": 4}
        with session(Session(self.store, self.toolbox)):
            return self.store.read(sample_rollouts(**asked, policy=policy))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    store, engine = Store(tmp_path / "store"), Counting()
    store.prepare()
    toolbox = Toolbox(places={MODEL.sha256: tmp_path})
    toolbox._open |= {("generator", name, str(tmp_path)): engine for name in ("vllm", "transformers")}
    with session(Session(store, toolbox)):
        pool = make_synthetic_pool(per_source=2, seed=0)
        yield Lab(store, toolbox, engine, pool, split_pool(pool=pool, heldout_per_source=0, seed=0))
        toolbox.close()


def test_rollouts_under_a_former_account_are_not_sampled_again(lab: Lab) -> None:
    """Filed under the name that the former commit gave them, without the columns that came since."""
    before = lab.rows()
    sampled, root = lab.engine.sampled, lab.store.root
    account = account_of(Policy(arm="panel", model=MODEL), EVALUATION)
    book = Ledger(root)
    (shard,) = book.shards(account)
    old = pq.read_table(shard).drop(["reading"])
    former = root / "ledger" / FORMER["base"]
    former.mkdir(parents=True)
    pq.write_table(old, former / shard.name)
    shard.unlink()
    for ref in lab.store.refs("rollouts"):
        lab.store.delete(ref)
    assert lab.rows().equals(before) and lab.engine.sampled == sampled == before.num_rows
    assert not list(book.folder(account).glob("shard-*")), "nothing was entered anew"


@pytest.mark.parametrize(
    ("scaffold", "sampled_anew"),
    [
        (replace(PANEL, name="another"), False),
        (replace(PANEL, trace_tag="another"), False),
        (replace(PANEL, answer_form="boxed"), False),
        (replace(PANEL, trace_opened=True), False),
        (replace(PANEL, template="Say it. {problem}"), True),
        (replace(PANEL, stop=()), True),
        (replace(PANEL, chat=True), True),
        (replace(PANEL, enable_thinking=True), True),
    ],
)
def test_another_reading_reads_again_and_another_prompt_samples_again(
    lab: Lab, scaffold: Scaffold, sampled_anew: bool
) -> None:
    before = lab.rows()
    sampled, made = lab.engine.sampled, len(lab.store.refs("rollouts"))
    after = lab.rows(scaffold)
    assert lab.engine.sampled == sampled * (2 if sampled_anew else 1)
    assert len(lab.store.refs("rollouts")) == made + 1, "it is another artifact"
    assert after["completion"].equals(before["completion"])
    parsed = [scaffold.parse(text) for text in before["completion"].to_pylist()]
    assert after["trace"].to_pylist() == [p.trace for p in parsed]
    assert after["tag_valid"].to_pylist() == [p.tag_valid for p in parsed]
    # the panel's answer is 7; what does not know its tag for a trace finds 8 and 7; no box is no answer
    verdicts = {"another": "ambiguous", "mutipersonaDebate": before["verdict"][0].as_py()}
    wanted = "no_answer" if scaffold.answer_form == "boxed" else verdicts[scaffold.trace_tag or ""]
    assert set(after["verdict"].to_pylist()) == {wanted}


def test_what_was_read_anew_is_read_back_as_it_was(lab: Lab) -> None:
    """And the other way round: the ledger's rows stay as they were entered, whoever reads them."""
    first = lab.rows()
    lab.rows(replace(PANEL, answer_form="boxed"))
    for ref in lab.store.refs("rollouts"):
        lab.store.delete(ref)
    assert lab.rows().equals(first)


def test_regrading_reads_as_was_read_whatever_the_arm_has_become(lab: Lab) -> None:
    """An artifact of a panel that asked for boxes is judged again by its boxes: there are none, today's panel or not."""
    boxed = lab.rows(replace(PANEL, answer_form="boxed"))
    (ref,) = lab.store.refs("rollouts")
    with session(Session(lab.store, lab.toolbox)):
        given = {"pool": lab.pool, "installed": GRADER_VERSION, "overrides": ()}
        again = lab.store.read(regrade_rollouts(rollouts=Rollouts.parse(str(ref)), **given))
    assert set(again["verdict"].to_pylist()) == set(boxed["verdict"].to_pylist()) == {"no_answer"}


def test_artifacts_and_accounts_name_the_scaffold_by_digest(lab: Lab) -> None:
    """In the notes that a report lists of every artifact, and in what the ledger says of an account."""
    lab.rows()
    (ref,) = lab.store.refs("rollouts")
    ((_, about),) = Ledger(lab.store.root).accounts()
    assert lab.store.manifest(ref).provenance.notes["scaffold"] == about["scaffold"] == PANEL.digest


def test_a_policy_has_the_scaffold_of_the_day_unless_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(PANEL, template="Say it. {problem}")
    kept = Policy(arm="panel", model=MODEL)
    monkeypatch.setitem(ARMS, "panel", replace(ARMS["panel"], scaffold=other))
    assert Policy(arm="panel", model=MODEL).scaffold == other
    assert kept.scaffold == PANEL != other and kept != Policy(arm="panel", model=MODEL)
