"""The forms of Prefect's UI: types, defaults, choices and limits, so that invalid input is rejected before a run
exists. What a form cannot check (such as whether a model exists), the run checks when it starts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from flows.study.profiles import PROFILES
from flows.study.request import ENDING, Request, named_in
from flows.study.resolve import Study
from flows.study.settings import SHORT, short_settings
from tasks.domain.grading.grading import FIELDS, read_overrides
from tasks.domain.ranges import NAME, Distinct, Seed
from tasks.domain.scaffolds import ARMS
from tasks.engines.hardware import EngineName


def _in_order(schema: dict[str, Any]) -> None:
    """Number the fields of a form. Postgres does not keep the order of keys, and the form would sort them by length."""
    for position, field in enumerate(schema["properties"].values()):
        field["position"] = position


FORM = ConfigDict(extra="forbid", json_schema_extra=_in_order)
if TYPE_CHECKING:
    ProfileName = ArmName = str
else:
    ProfileName, ArmName = Literal[*PROFILES], Literal[*ARMS]
Text = Annotated[str, Field(pattern=r"^[^\x00]{1,1000}$")]
Name = Annotated[str, Field(pattern=rf"^({NAME.pattern})?$")]
FileText = Annotated[str, Field(max_length=200_000, json_schema_extra={"format": "textarea"})]
UNIQUE = Field(json_schema_extra={"uniqueItems": True})


class SettingForm(BaseModel):
    """One additional setting of the study, as path and value."""

    model_config = FORM | ConfigDict(title="Setting")
    field: Text = Field(description="Path of the setting, such as training.steps.")
    value: Text = Field(description="Value, as after `--set field=` in a command.")


class StudyForm(BaseModel):
    """The study. Empty fields keep the profile's values."""

    model_config = FORM | ConfigDict(title="Study")
    profile: ProfileName = Field(default="demo", description="The built-in study to start from.")
    arms: Annotated[list[ArmName], UNIQUE] = Field(default=[], description="The arms to compare.")
    seeds: Annotated[list[Seed], Distinct, UNIQUE] = Field(default=[], description="Each arm is trained once per seed.")
    limit: int | None = Field(default=None, ge=1, le=100_000, description="Draw only N problems of the pool.")
    pools: list[Text] = Field(default=[], description="Files of problems, named sets, or sets on the hub.")
    data: Text | None = Field(default=None, description="Folder of the sources' files on the workers.")
    model: Text | None = Field(default=None, description="A folder, OWNER/NAME@COMMIT, or sha256:… of a folder.")
    encoder: Text | None = Field(default=None, description="Folder of the sentence encoder, or its sha256:….")
    engine: EngineName = Field(default="auto", description="Sampling engine; auto: vLLM if it runs, else transformers.")
    settings: list[SettingForm] = Field(default=[], description="Other settings, e.g. arms.thinking.model.")
    file: FileText = Field(default="", description="The text of a study.toml of your own, instead of a profile.")
    name: Name = Field(default="", description="Name shown in lists of runs and reports.")
    question: Annotated[str, Field(max_length=200)] = Field(default="", description="One of the file's questions.")

    def request(self) -> Request:
        named = named_in(self.file)
        word = f"{named or self.name or 'study'}{ENDING}" if self.file else self.profile
        return Request(
            profile="/".join(filter(None, (word, self.question))),
            text=self.file,
            name=self.name if named or not self.file else "",
            data=self.data,
            encoder=self.encoder,
            settings=(
                *short_settings({name: value for name, value in self if name in SHORT}),
                *(f"{s.field}={s.value}" for s in self.settings),
            ),
        )


class PinnedForm(StudyForm):
    """A study as its run requested it, for workers that resolve it after the overrides of verdicts have changed."""

    overrides: str | None = Field(
        default=None, description="The grader's overrides as JSON lines; empty: the active ones."
    )

    @classmethod
    def of(cls, form: StudyForm, study: Study) -> Self:
        rows = study.grader.overrides.rows
        lines = [json.dumps(dict(zip(FIELDS, row, strict=True))) for row in rows]
        return cls(**form.model_dump(), overrides="\n".join(lines))

    def pinned(self, study: Study) -> Study:
        """Return the study with the grader of the run."""
        if self.overrides is None:
            return study
        return replace(study, grader=replace(study.grader, overrides=read_overrides(self.overrides, "overrides")))
