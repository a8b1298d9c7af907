"""The forms that people fill in Prefect's UI: types, defaults, choices and limits, so that a wrong input is refused
before a run exists. What a form cannot know (is the model there?) is refused when the run starts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from flows.study.questions import PROFILES
from flows.study.request import Request
from flows.study.resolve import Study
from tasks.domain.arms import ARMS
from tasks.domain.grading.overrides import FIELDS, read_overrides
from tasks.metering import Budget


def _known(what: str, names: list[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"unknown {what} '{value}' (known: {', '.join(names)})")
        return value

    return AfterValidator(check)


def _sorted_seeds(seeds: list[int]) -> list[int]:
    if len(set(seeds)) != len(seeds):
        raise ValueError("every seed once")
    return seeds


ProfileName = Annotated[str, _known("profile", list(PROFILES)), Field(json_schema_extra={"enum": list(PROFILES)})]
ArmName = Annotated[str, _known("arm", list(ARMS)), Field(json_schema_extra={"enum": list(ARMS)})]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Setting = Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z_]+)*=[^\x00]{1,200}$")]


class StudyForm(BaseModel):
    """Which study. Everything left empty is as the profile has it."""

    model_config = ConfigDict(extra="forbid", title="Study")
    profile: ProfileName = Field(default="demo", description="A named complete set of numbers.")
    arms: list[ArmName] = Field(
        default=[], description="Arms to run; empty: the profile's.", json_schema_extra={"uniqueItems": True}
    )
    seeds: Annotated[list[Seed], AfterValidator(_sorted_seeds)] = Field(
        default=[], description="Training seeds; empty: the profile's.", json_schema_extra={"uniqueItems": True}
    )
    limit: int | None = Field(default=None, ge=1, le=100_000, description="Use only the first N problems.")
    settings: list[Setting] = Field(default=[], description="Other numbers, e.g. training.learning_rate=1e-3")

    def request(self) -> Request:
        return Request(
            profile=self.profile,
            arms=tuple(self.arms),
            seeds=tuple(self.seeds),
            limit=self.limit,
            settings=tuple(self.settings),
        )


class PinnedForm(StudyForm):
    """A study as its run was asked for, for workers that resolve it later: what is overridden since is for the next."""

    overrides: str | None = Field(
        default=None, description="The grader's overrides as JSON lines; absent: those that are active."
    )

    @classmethod
    def of(cls, form: StudyForm, study: Study) -> Self:
        rows = study.grader.overrides.rows()
        lines = [json.dumps(dict(zip(FIELDS, row, strict=True))) for row in rows]
        return cls(**form.model_dump(), overrides="\n".join(lines))

    def pinned(self, study: Study) -> Study:
        """The study under the grader of the run."""
        if self.overrides is None:
            return study
        return replace(study, grader=replace(study.grader, overrides=read_overrides(self.overrides, "overrides")))


class BudgetForm(BaseModel):
    """The most that the run may spend, over all its attempts. At the wall it is parked and asks for more."""

    model_config = ConfigDict(extra="forbid", title="Budget")
    tokens: float | None = Field(default=None, gt=0, le=1e15, description="Prompt and completion tokens.")
    gpu_hours: float | None = Field(default=None, gt=0, le=1e7, description="Devices × hours.")
    usd: float | None = Field(
        default=None, gt=0, le=1e7, description="US dollars, at the prices of flows/study/prices.py."
    )

    def budget(self) -> Budget:
        return Budget(tokens=self.tokens, gpu_hours=self.gpu_hours, usd=self.usd)

    def raised(self, by: BudgetForm) -> BudgetForm:
        """Each limit plus what the other form adds to it; a limit that does not exist stays none."""
        mine, more = self.model_dump(), by.model_dump()
        return BudgetForm(**{n: None if v is None else v + (more[n] or 0) for n, v in mine.items()})
