from __future__ import annotations

from dataclasses import replace

import pytest

from flows.study.profiles import PROFILES
from storage.errors import UserError
from tasks.domain.grpo.learner_config import check_overlong
from tasks.domain.policies import Sampling
from tests.domain.grpo.test_types import CONFIG

PUNISHED = replace(CONFIG, max_tokens=100, overlong_cache=20)


def test_a_punishment_that_no_completion_reaches_is_refused() -> None:
    """It begins after 80 tokens; a cap of 81 reaches it."""
    check_overlong(PUNISHED, Sampling(max_tokens=81))
    check_overlong(CONFIG, Sampling(max_tokens=8))
    with pytest.raises(UserError, match="begins after 80 tokens, and rollouts end at 80"):
        check_overlong(PUNISHED, Sampling(max_tokens=80))


def test_no_profile_punishes_in_vain() -> None:
    for profile in PROFILES.values():
        for training in (profile.training, *(o.training for o in profile.objectives)):
            check_overlong(training, profile.rollouts)
