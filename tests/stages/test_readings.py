"""What the ledger holds is read by the scaffold that asks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tasks.domain.policies import BaseModel, Policy, Sampling, ServedAdapter
from tasks.domain.scaffolds import PANEL, Scaffold
from tasks.engines.protocols import Completion, Request
from tasks.sampling import sample_rollouts
from tasks.stage import Session, session
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
