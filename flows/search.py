"""Test-time search of one policy: the held-out problems under every method that a study asks for."""

from __future__ import annotations

from flows.made import Start
from flows.problems import Prepared
from flows.study.resolve import Study
from storage.artifacts.kinds import Searches
from tasks.domain.search.method import CERTAINTY
from tasks.domain.search.registry import method_named, with_base
from tasks.searches import search_problems


def search(study: Study, at: Prepared, start: Start) -> tuple[Searches, ...]:
    """One artifact a method, and one of the method whose rollouts they share; none where no method is asked for."""
    p, policy = study.profile, start.policy
    methods = with_base({name: method_named(name) for name in p.search.methods})
    return tuple(
        search_problems.titled(f"{name}: {policy.arm} at step {policy.step}")(
            pool=at.studied.pool,
            splits=at.studied.splits,
            policy=policy,
            sampling=p.final.sampling,
            name=name,
            method=method,
            tokens=p.search.tokens,
            context=p.hardware.max_model_len,
            grader_version=study.grader.version,
            split="heldout",
            training=start.training,
            lora_rank=p.training.lora_rank,
            reward=study.reward if method.reward not in ("", CERTAINTY) else None,
        )
        for name, method in methods.items()
    )
