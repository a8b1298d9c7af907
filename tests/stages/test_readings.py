"""What the ledger holds is read by the scaffold that asks, and graded by its answer kind."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from storage.artifacts.schemas import Rollouts
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grading.kinds import pinned
from tasks.domain.grpo.second_scaffold import answer_key
from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.problems.problems import PoolPolicy, pool_rows
from tasks.domain.problems.sources import source_spec
from tasks.domain.scaffolds import PANEL, Scaffold
from tasks.engines.grading.graders import Graders
from tasks.engines.protocols import Completion, Request
from tasks.grading import by_grader
from tasks.partitions import partition_answers, partitions_of
from tasks.pool import build_pool, make_synthetic_pool, split_pool
from tasks.regrading import regrade_rollouts
from tasks.sampling import sample_rollouts
from tasks.stage import Session, session
from tests.measures.test_partitions import answering
from tests.plugged import install
from tests.stages.test_sampling import FromTheSeed, a_lab
from tests.stages.test_sampling import Lab as SamplingLab

MODEL, EVALUATION = BaseModel(name="a model", sha256="c" * 64), Sampling(max_tokens=32, temperature=0.7, seed=3)


class Counting(FromTheSeed):
    """An engine that answers 7 in the form of the panel, whatever it is asked."""

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        return (0,)

    def generate(self, requests: Sequence[Request], adapter: ServedAdapter | None) -> Iterator[Completion]:
        for done in super().generate(requests, adapter):
            yield replace(done, text="<mutipersonaDebate>so <answer>8</answer></mutipersonaDebate> <answer>7</answer>")


class Lab(SamplingLab):
    def rows(self, scaffold: Scaffold = PANEL) -> pa.Table:
        """As a run of its own has them, whose policy has this scaffold."""
        policy = Policy(arm="panel", model=MODEL, scaffold=scaffold)
        with session(Session(self.store, self.toolbox)):
            return self.store.read(self.sample(sample_rollouts, 4, policy=policy, sampling=EVALUATION))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    for made in a_lab(tmp_path, Counting(), MODEL, per_source=2):
        yield Lab(**vars(made))


@pytest.mark.parametrize(
    ("scaffold", "sampled_anew"),
    [
        (replace(PANEL, name="another"), False),
        (replace(PANEL, trace_tag="another"), False),
        (replace(PANEL, answer_form="boxed"), False),
        (replace(PANEL, answer_form="boxed", trace_tag=None), False),
        (replace(PANEL, template="Say it. {problem}"), True),
        (replace(PANEL, stop=()), True),
        (replace(PANEL, chat=True), True),
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


# A study's answer kinds hold everywhere: in pools, in what was sampled before, in classes of answers.


QUIZ = [
    {"problem": "Which is a fruit? (A) apple (B) chair", "gold": "A", "source": "s", "source_id": "1"},
    {"problem": "Which is a number? (A) seven (B) blue", "gold": "(A)", "source": "s", "source_id": "2"},
    {"problem": "How many legs has a cat?", "gold": "4", "source": "s", "source_id": "3"},
]


def kept(*kinds: str) -> dict[str, str]:
    pool, _ = pool_rows(QUIZ, policy=PoolPolicy(answer_kinds=kinds))
    return {row["source_id"]: row["gold"] for row in pool}


def test_golds_are_checked_as_what_the_arms_ask_for() -> None:
    assert kept("multiple_choice") == {"1": "A", "2": "(A)"}
    assert kept("integer") == {"3": "4"}
    assert kept("exact_text") == {"1": "A", "2": "(A)", "3": "4"}
    assert kept("math", "integer") == {"3": "4"}, "of an arm each"
    _, issues = pool_rows(QUIZ, policy=PoolPolicy(answer_kinds=("multiple_choice",)))
    assert [row["detail"] for row in issues if row["code"] == "gold_fails"] == [
        "'4' as multiple_choice: wrong, states no multiple choice"
    ]


def test_what_was_sampled_is_judged_by_another_kind_and_not_sampled_anew(lab: Lab) -> None:
    """The engine answers 7 everywhere, which is no letter and no problem's text."""
    as_math = lab.rows()
    sampled = lab.engine.sampled
    whole = lab.rows(replace(PANEL, answer_kind="integer"))
    letters = lab.rows(replace(PANEL, answer_kind="multiple_choice"))
    assert lab.engine.sampled == sampled
    assert whole["correct"].equals(as_math["correct"])
    assert set(whole["reason"].to_pylist()) <= {"by integer", "not equal"}
    assert set(letters["reason"].to_pylist()) == {"states no multiple choice"}
    assert letters["canonical"].null_count == letters.num_rows
    refs = [Rollouts.parse(str(ref)) for ref in lab.store.refs("rollouts")]
    version = lab.toolbox.graders().version
    with session(Session(lab.store, lab.toolbox)):
        classes = [lab.store.read(partition_answers(rollouts=ref, grader_version=version)) for ref in refs]
        assert sorted(table["answer_class"].null_count for table in classes) == [0, 0, letters.num_rows]
        again = regrade_rollouts(rollouts=refs[0], pool=lab.pool, installed=version, overrides=())
        assert lab.store.read(again)["verdict"].equals(lab.store.read(refs[0])["verdict"])


def told(rows: pa.Table, graders: Graders, kind: str) -> Sequence[int | None]:
    table = partitions_of(rows, by_grader(graders, kind), by_value=kind == "math")
    return table["answer_class"].to_pylist()


def test_texts_of_one_value_are_one_answer_of_mathematics_alone(graders: Graders) -> None:
    rows = answering((), ("1/2", "0.5", "2"))
    assert len(set(told(rows, graders, "math"))) == 2
    assert len(set(told(rows, graders, "exact_text"))) == 3
    assert answer_key("0.5", correct=False) == answer_key("1/2", correct=False)
    assert answer_key("0.5", correct=False, kind="exact_text") == "0.5"


# A grader of another package that raises stops the run once what was sampled is durable; a rare raise is counted.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("plugged"))


@pytest.fixture(autouse=True)
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_one_that_raises_on_a_gold_is_refused_when_the_pool_is_built(lab: Lab) -> None:
    (file := lab.store.root / "hours.jsonl").write_text('{"uid": "a", "problem": "When?", "gold": "7"}')
    spec, path = source_spec(file, None)
    lab.toolbox.places[spec.sha256] = path
    policy = PoolPolicy(answer_kinds=(pinned("raising"),))
    said = r"^raised by grader raising@lab-tasks==1\.0: AttributeError: .*, even for the gold '7'"
    with session(Session(lab.store, lab.toolbox)), pytest.raises(UserError, match=said):
        build_pool(sources=(spec,), policy=policy)


def test_one_that_raises_on_every_other_answer_stops_once_they_are_durable(lab: Lab) -> None:
    with session(Session(lab.store, lab.toolbox)):
        lab.pool = make_synthetic_pool(per_source=8, seed=1)
        lab.splits = split_pool(pool=lab.pool, heldout_per_source=0, seed=0)
    broken = replace(PANEL, answer_kind=pinned("unequal"))
    sampled = 0
    for _ in range(2):
        with pytest.raises(UserError, match=r"failed on all \d+ answers: .*unequal@lab-tasks==1\.0: KeyError: '7'"):
            lab.rows(broken)
        sampled = lab.engine.sampled
        book = Ledger(lab.store.root)
        assert sum(rows.num_rows for account, _ in book.accounts() if (rows := book.read(account))) == sampled > 0
    assert lab.engine.sampled == sampled, "nothing is sampled again to be told so again"
    assert lab.rows(replace(PANEL, answer_kind="exact_text"))["verdict"].to_pylist(), "nor for a grader that works"
    assert lab.engine.sampled == sampled
