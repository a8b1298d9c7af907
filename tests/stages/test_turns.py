"""Objectives that need more of a step than one rollout each, through the stage with the demo's model: drafts, critiques
and refinements, two agents, several answers in one completion."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from storage.artifacts.fingerprint import restored
from storage.artifacts.schemas import Training
from storage.errors import UserError
from storage.ledger import Ledger
from tasks.domain.grpo.learner_config import LearnerConfig
from tasks.domain.grpo.second_scaffold import CRITIC, several
from tasks.domain.grpo.steps import TrainRollout
from tasks.domain.policies import AS_CRITIC
from tasks.domain.scaffolds import PANEL
from tasks.domain.search.method import PREFIX
from tasks.engines.adapter_files import read_served
from tasks.stage import Progress
from tasks.turns import Chain, Row, Turns, as_train_rollout
from tests.stages.training_lab import DRAW, START, STILL, Lab, killed_and_resumed, lab, short

__all__ = ["lab"]
SECOND = {"refined": CRITIC, "multi_agent": CRITIC, "vpo": several(PANEL, 3), "multi_rlvr_sum": several(PANEL, 3)}
TWO_STEPS = short(groups_per_step=2, group_size=3)
EACH = TWO_STEPS.groups_per_step * TWO_STEPS.group_size
OF_CRITIC = ("critic_updates", "critic_kl_behaviour")
AGENTS = pytest.mark.parametrize("advantage", ["refined", "multi_agent"])


def train(lab: Lab, advantage: str, context: int | None = 1024, steps: int = 2, **more: Any) -> Training:
    second = SECOND.get(advantage)
    given = {"second": second, "context": context if second == CRITIC else None, "evaluation_group_size": 1}
    return lab.train(replace(TWO_STEPS, advantage=advantage, steps=steps), **given | more)


def by_turn(lab: Lab) -> Counter[tuple[str, str, int, bool]]:
    """Rows of the ledger by scaffold, role, the step of the policy and whether they are of a later turn."""
    book, found = Ledger(lab.store.root), Counter[tuple[str, str, int, bool]]()
    for account, about in book.accounts():
        rows = book.read(account)
        assert rows is not None
        of = str(about["scaffold"]), str(about.get("role", "")), int(str(about["step"]))
        found.update((*of, problem.startswith(PREFIX)) for problem in rows["problem_id"].to_pylist())
    return found


def later_prompts(lab: Lab, scaffold: str) -> list[int]:
    """Lengths of the later turns' prompts, in order."""
    book, found = Ledger(lab.store.root), list[int]()
    for account, about in book.accounts():
        rows = book.read(account)
        assert rows is not None
        if about["scaffold"] == scaffold:
            lengths = zip(rows["problem_id"].to_pylist(), rows["num_prompt_tokens"].to_pylist(), strict=True)
            found += [length for problem, length in lengths if problem.startswith(PREFIX)]
    return sorted(found)


@pytest.fixture
def heldout(lab: Lab) -> int:
    return lab.store.read(lab.splits)["split"].to_pylist().count("heldout")


@pytest.fixture
def judged_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second draft, and what follows on the others, so that both agents have updates: the demo's model was not
    pretrained on critiques."""

    def judged(row: Row, *how: object) -> TrainRollout:
        return replace(as_train_rollout(row, *how), correct=row["rollout"] % 2 == 0)  # type: ignore[arg-type]

    monkeypatch.setattr("tasks.turns.as_train_rollout", judged)
    monkeypatch.setattr(Chain, "right", property(lambda chain: chain.request.rollout % 2 == 1))


@pytest.mark.parametrize(
    ("advantage", "turn"),
    [
        ("refined", 4),
        *(pytest.param("refined", turn, marks=pytest.mark.slow) for turn in (1, 2, 5)),
        *(pytest.param("multi_agent", turn, marks=pytest.mark.slow) for turn in (1, 2, 4, 5)),
    ],
)
def test_killed_between_two_turns_and_resumed_is_the_undisturbed_run(
    lab: Lab, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, advantage: str, turn: int
) -> None:
    """Nothing is asked for twice, and the weights are the same bytes. A refinement is right that has an even number of
    tokens, so that every step has an update."""
    if advantage == "multi_agent":
        request.getfixturevalue("judged_by_place")
    else:
        monkeypatch.setattr("tasks.turns.as_train_rollout", lambda *of: even(as_train_rollout(*of)))

    parts = (".", "critic") if advantage == "multi_agent" else (".",)
    made = killed_and_resumed(lab, lambda: train(lab, advantage), turn)
    resumed, found = [lab.weights(made, part=part) for part in parts], by_turn(lab)
    lab.move()
    whole = train(lab, advantage)
    assert [lab.weights(whole, part=part) for part in parts] == resumed and by_turn(lab) == found
    assert sum(row["updates"] for row in lab.store.read(whole).to_pylist()) > 0


def even(rollout: TrainRollout) -> TrainRollout:
    return replace(rollout, correct=len(rollout.token_ids) % 2 == 0)


@pytest.mark.parametrize("advantage", ["vpo", "multi_rlvr_sum"])
def test_several_answers_in_one_completion(lab: Lab, advantage: str) -> None:
    made = train(lab, advantage)
    assert (several(PANEL, 3).digest, "", 0, False) in by_turn(lab)
    assert lab.store.read(made).num_rows == 2


@pytest.mark.parametrize("advantage", ["refined", "vpo", "darling_encoded"])
def test_what_an_objective_needs_is_asked_for_before_anything_is_sampled(lab: Lab, advantage: str) -> None:
    with pytest.raises(UserError, match=f"advantage {advantage} needs"):
        train(lab, advantage, second=None, context=None)
    assert not by_turn(lab)
    if advantage == "refined":
        with pytest.raises(UserError, match="how long its later turns may be"):
            Turns(replace(STILL, advantage=advantage), START, CRITIC, None)


@AGENTS
def test_a_turn_that_outgrows_the_context_is_cut_and_that_is_said(lab: Lab, advantage: str) -> None:
    """Room for the shorter half of the critiques' prompts; refinements' are shorter than any."""
    train(lab, advantage, steps=1)
    critics, refiners = later_prompts(lab, CRITIC.digest), later_prompts(lab, PANEL.digest)
    assert len(critics) == len(refiners) == EACH and max(refiners) < min(critics) < max(critics)
    longest = critics[EACH // 2 - 1]
    fit = sum(length <= longest for length in critics)
    lab.move()
    heard: list[Progress] = []
    context = longest + DRAW.max_tokens
    made = train(lab, advantage, steps=1, context=context, listener=heard.append)
    assert 0 < fit < EACH
    assert [event.detail for event in heard if event.event == "noted" and "drafts have no" in event.detail] == [
        f"{EACH - fit} of {EACH} drafts have no critique: a prompt of {critics[-1]} tokens and"
        f" max_tokens={DRAW.max_tokens} do not fit the context of {context} (hardware.max_model_len)"
    ]
    assert len(later_prompts(lab, CRITIC.digest)) == len(later_prompts(lab, PANEL.digest)) == fit
    if advantage == "refined":
        assert lab.store.read(made).to_pylist()[0]["truncated"] >= (EACH - fit) / EACH


# Generator and critic as two adapters.


@pytest.mark.usefixtures("judged_by_place")
def test_each_turn_is_its_agents_and_each_agent_trains_on_its_own(lab: Lab, heldout: int) -> None:
    """Both start as the same policy, so the first critiques are filed as its own; from then on the critic is another one.
    What each trains on is what its own adapter sampled: the policy that learns and the one that sampled are one. What
    the start says is shared with critique and refine."""
    before = train(lab, "refined")
    made = train(lab, "multi_agent")
    sampled = [int(lab.notes(one)["sampled_rollouts"]) for one in (before, made)]
    assert sampled == [2 * 3 * EACH + 2 * heldout, 3 * EACH + heldout]
    steps = lab.store.read(made).to_pylist()
    critic = {name: [r["value"] for r in lab.diagnostics(made) if r["metric"] == name] for name in OF_CRITIC}
    assert [row["updates"] for row in steps] == [1, 1] == critic["critic_updates"]
    kl = [*(row["kl_behaviour"] for row in steps), *critic["critic_kl_behaviour"]]
    assert len(kl) == 4 and max(kl) < 1e-8
    lab.move()
    made = train(lab, "multi_agent")
    assert by_turn(lab) == {
        (PANEL.digest, "", 0, False): EACH + heldout,
        (PANEL.digest, "", 0, True): EACH,
        (CRITIC.digest, "", 0, True): EACH,
        (PANEL.digest, "", 1, False): EACH,
        (PANEL.digest, "", 1, True): EACH,
        (CRITIC.digest, AS_CRITIC, 1, True): EACH,
        (PANEL.digest, "", 2, False): heldout,
    }
    # the critic's adapter is kept where the generator's is, in PEFT's format; the recipe says that there are two
    assert lab.weights(made) != lab.weights(made, part="critic")
    folder = lab.store.files(made) / "step-0002"
    assert [read_served(folder / part).alpha for part in (".", "critic")] == [TWO_STEPS.lora_alpha] * 2
    learner = restored(LearnerConfig, lab.store.manifest(made).recipe.arguments["learner"])
    assert learner.advantage == "multi_agent"
