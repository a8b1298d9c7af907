"""What reading shows of stored recipes."""

from __future__ import annotations

import pytest

from storage.artifacts.manifest import recipe_of
from storage.errors import UserError
from storage.reading.recipes import arm_of, file_of, report_arguments
from tasks.domain.policies import BaseModel, Policy
from tasks.domain.problems.problems import PoolPolicy
from tasks.published.importing import PublishedFile

POLICY = Policy(arm="panel", model=BaseModel(sha256="0"))


def test_the_arm_is_that_of_a_policy_that_is_sampled_from_or_trained() -> None:
    assert [arm_of(recipe_of("s", 1, {name: POLICY})) for name in ("policy", "start", "other")] == [
        "panel",
        "panel",
        None,
    ]
    assert arm_of(recipe_of("build_pool", 1, {"policy": PoolPolicy()})) is None


def test_a_published_file_has_a_path() -> None:
    assert file_of(recipe_of("s", 1, {"file": PublishedFile("reports/a/b.json", "0")})) == "reports/a/b.json"
    assert file_of(recipe_of("s", 1, {})) is None


def test_a_report_of_another_version_is_not_guessed_at() -> None:
    read = report_arguments(recipe_of("render_report", 1, {"profile": "demo", "arms": ("b", "a"), "more": 1}))
    assert (read.profile, read.arms) == ("demo", ("b", "a"))
    for given in ({"profile": "demo"}, {"profile": "demo", "arms": "panel"}, {"arms": ("a",)}):
        with pytest.raises(UserError, match=r"ReportArguments|tuple"):
            report_arguments(recipe_of("render_report", 1, given))
