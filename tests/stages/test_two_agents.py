"""Generator and critic as two adapters, through the stage with the demo's model and a real engine."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from storage.artifacts.fingerprint import restored
from storage.artifacts.kinds import Training
from storage.ledger import Ledger
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import CRITIC
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.policies import AS_CRITIC
from tasks.domain.scaffolds import PANEL
from tasks.engines.adapter_files import read_served
from tasks.engines.learning.adapters import Adapters
from tasks.rollouts import ensure_rollouts
from tasks.turns.refining import Chain, Row, as_train_rollout
from tests.stages.test_training import Lab, lab
from tests.stages.test_turns import TWO_STEPS, elsewhere, train

__all__ = ["lab", "train"]
EACH = TWO_STEPS.groups_per_step * TWO_STEPS.group_size
BOTH = (".", "critic")


@pytest.fixture(autouse=True)
def judged_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second draft, and what follows on the others, so that both agents have updates: the demo's model was not
    pretrained on critiques."""

    def judged(row: Row, *how: object) -> TrainRollout:
        return replace(as_train_rollout(row, *how), correct=row["rollout"] % 2 == 0)  # type: ignore[arg-type]

    monkeypatch.setattr("tasks.turns.refining.as_train_rollout", judged)
    monkeypatch.setattr(Chain, "right", property(lambda chain: chain.request.rollout % 2 == 1))


def by_turn(lab: Lab) -> dict[tuple[str, str, int], int]:
    """Rows of the ledger by scaffold, role and the step of the policy."""
    book, found = Ledger(lab.store.root), dict[tuple[str, str, int], int]()
    for account, about in book.accounts():
        rows = book.read(account)
        assert rows is not None
        key = str(about["scaffold"]), str(about.get("role", "")), int(str(about["step"]))
        found[key] = found.get(key, 0) + rows.num_rows
    return found


def told(lab: Lab, made: Training, metric: str) -> list[float]:
    rows = pq.read_table(lab.store.files(made) / "diagnostics.parquet").to_pylist()
    return [row["value"] for row in rows if row["metric"] == metric]


def adapters(lab: Lab, made: Training) -> list[bytes]:
    folder = lab.store.files(made) / "step-0002"
    return [(folder / part / "adapter_model.safetensors").read_bytes() for part in BOTH]


def test_each_turn_is_its_agents_and_each_agent_trains_on_its_own(lab: Lab, train) -> None:
    """Both start as the same policy, so the first critiques are filed as its own; from then on the critic is another one.
    What each trains on is what its own adapter sampled: the policy that learns and the one that sampled are one."""
    made = train("multi_agent")
    heldout = lab.store.read(lab.splits)["split"].to_pylist().count("heldout")
    assert by_turn(lab) == {
        (PANEL.digest, "", 0): 2 * EACH + heldout,
        (CRITIC.digest, "", 0): EACH,
        (PANEL.digest, "", 1): 2 * EACH,
        (CRITIC.digest, AS_CRITIC, 1): EACH,
        (PANEL.digest, "", 2): heldout,
    }
    steps = lab.store.read(made).to_pylist()
    assert [row["updates"] for row in steps] == [1, 1] == told(lab, made, "critic_updates")
    kl = [*(row["kl_behaviour"] for row in steps), *told(lab, made, "critic_kl_behaviour")]
    assert len(kl) == 4 and max(kl) < 1e-8
    one, other = adapters(lab, made)
    assert one != other


def test_a_critic_sampled_by_the_other_adapter_would_show(lab: Lab, train, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(Adapters, "critic", Adapters.served)
    made = train("multi_agent")
    assert told(lab, made, "critic_kl_behaviour")[1] > 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("turn", [1, 2, 4, 5])
def test_killed_between_two_turns_and_resumed_is_the_undisturbed_run(
    lab: Lab, train, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    calls = iter(range(1, 99))

    def dying(*given: object, **others: object) -> object:
        done = ensure_rollouts(*given, **others)  # type: ignore[arg-type]
        if next(calls) == turn:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr("tasks.training.ensure_rollouts", dying)
        with pytest.raises(KeyboardInterrupt):
            train("multi_agent")
    before = sum(by_turn(lab).values())
    made = train("multi_agent")
    resumed, found = adapters(lab, made), by_turn(lab)
    sampled = int(lab.store.manifest(made).provenance.notes["sampled_rollouts"])
    assert before + sampled == sum(found.values()), "what was sampled before the kill was not sampled again"
    lab.store = elsewhere(lab)
    assert adapters(lab, train("multi_agent")) == resumed and by_turn(lab) == found


def test_what_the_start_says_is_shared_with_critique_and_refine(lab: Lab, train) -> None:
    """Drafts, critiques and refinements of the first step are of one policy: paid once."""
    notes = [lab.store.manifest(train(a)).provenance.notes["sampled_rollouts"] for a in ("refined", "multi_agent")]
    heldout = lab.store.read(lab.splits)["split"].to_pylist().count("heldout")
    assert [int(number) for number in notes] == [2 * 3 * EACH + 2 * heldout, 3 * EACH + heldout]


def test_the_critics_adapter_is_kept_where_the_generators_is(lab: Lab, train) -> None:
    """In PEFT's format, both read by the reference engine; the recipe says that there are two."""
    made = train("multi_agent")
    folder = lab.store.files(made) / "step-0002"
    alphas = [read_served(folder / part).alpha for part in BOTH]
    assert alphas == [TWO_STEPS.lora_alpha] * 2
    learner = restored(LearnerConfig, lab.store.manifest(made).recipe.arguments["learner"])
    assert learner.advantage == "multi_agent"
