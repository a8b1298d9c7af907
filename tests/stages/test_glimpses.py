"""Bands are told of whole groups alone, and a trace once."""

from __future__ import annotations

from tasks import rollouts
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.engines.sampling.sampler import RolloutRequest, Rows

POLICY = Policy(arm="panel", model=BaseModel(sha256="m"))


def asked(problem: str, rollout: int) -> RolloutRequest:
    return RolloutRequest(problem, "s", "?", "7", rollout, POLICY, Sampling(max_tokens=8), 0)


def test_bands_are_of_whole_groups_that_were_begun_here(monkeypatch) -> None:
    """a: right and wrong. b: wrong, wrong. c is half in the ledger already. d waits for its second rollout."""
    told: list[str] = []
    monkeypatch.setattr(rollouts, "progress", lambda *_, detail, event: told.append(f"{event} {detail}"))
    requested = [asked(problem, rollout) for problem in "abcd" for rollout in (0, 1)]
    groups = rollouts.WholeGroups(requested, [one for one in requested if (one.problem_id, one.rollout) != ("c", 0)])

    def rows(*outcomes: tuple[str, int, bool]) -> Rows:
        row: dict[str, object] = {"arm": "panel", "completion": "7", "verdict": "so"}
        return [(asked(problem, rollout), row | {"correct": right}) for problem, rollout, right in outcomes]

    assert groups.tell(rows(("a", 0, True), ("b", 0, False), ("b", 1, False))) == (1, 0, 0)
    assert groups.tell(rows(("a", 1, False), ("c", 1, True), ("d", 0, True))) == (1, 1, 0)
    assert told == ["seen panel: 7  → so"]
