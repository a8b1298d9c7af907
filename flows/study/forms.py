"""The forms that people fill in Prefect's UI: types, defaults, choices and limits, so that a wrong input is refused
before a run exists. What a form cannot know (is the model there?) is refused when the run starts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from flows.study.profiles import PROFILES
from flows.study.request import ENDING, Request, named_in
from flows.study.resolve import Study
from flows.study.set_option import SHORT, settable, short_settings
from storage.errors import did_you_mean
from tasks.domain.arms import ARMS
from tasks.domain.budget import MOST, Budget
from tasks.domain.grading.grading import FIELDS, read_overrides
from tasks.domain.ranges import NAME, Distinct, Seed, refused_by
from tasks.domain.search.registry import METHODS, method_named
from tasks.engines.hardware import ENGINES


def _known(what: str, names: list[str]) -> tuple[AfterValidator, FieldInfo]:
    """One of these: refused by the server with the names, and in Python with the nearest one."""

    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"unknown {what} '{value}'{did_you_mean(value, names)} (known: {', '.join(names)})")
        return value

    return AfterValidator(check), Field(json_schema_extra={"enum": [*names]})


def _in_order(schema: dict[str, Any]) -> None:
    """Postgres forgets the order of an object's names, and the form would show them by length."""
    for position, field in enumerate(schema["properties"].values()):
        field["position"] = position


FORM = ConfigDict(extra="forbid", json_schema_extra=_in_order)
ProfileName = Annotated[str, *_known("profile", list(PROFILES))]
ArmName = Annotated[str, *_known("arm", list(ARMS))]
EngineName = Annotated[str, *_known("engine", list(ENGINES))]
SettingName = Annotated[str, *_known("setting", list(settable(PROFILES["demo"])))]
MethodName = Annotated[
    str,
    refused_by(method_named),
    Field(json_schema_extra={"pattern": rf"^({'|'.join(METHODS)})(:[a-z_]+=[^:,\x00]+)*$"}, max_length=200),
]
Text = Annotated[str, Field(pattern=r"^[^\x00]{1,1000}$")]
FileText = Annotated[str, Field(max_length=200_000)]


class SettingForm(BaseModel):
    """One more number of the profile."""

    model_config = FORM | ConfigDict(title="Setting")
    field: SettingName = Field(description="Its path in the profile.")
    value: Text = Field(description="As on the command line after `--set field=`.")


class ArmForm(BaseModel):
    """What one arm stands on, where that is not as the profile has it."""

    model_config = FORM | ConfigDict(title="Arm")
    arm: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,59}$")] = Field(
        description="One of the study's arms, or of its file's."
    )
    model: Text | None = Field(
        default=None,
        description="Its base model: a name in VARBAND_MODELS, a folder on the workers, OWNER/NAME@COMMIT.",
    )
    adapter: Text | None = Field(
        default=None, description="A LoRA adapter made elsewhere that it starts from: a folder, or OWNER/NAME@COMMIT."
    )
    evaluated_only: bool = Field(
        default=False, description="A ceiling: screened and evaluated as it is, never trained."
    )

    def settings(self) -> list[str]:
        asked = {"model": self.model, "adapter": self.adapter, "trained_as": "none" if self.evaluated_only else None}
        return [f"arms.{self.arm}.{name}={value}" for name, value in asked.items() if value is not None]


class StudyForm(BaseModel):
    """Which study. Everything left empty is as the profile has it."""

    model_config = FORM | ConfigDict(title="Study")
    profile: ProfileName = Field(
        default="demo", description="A named complete set of numbers; what follows changes some of them."
    )
    arms: list[ArmName] = Field(
        default=[],
        description="The prompts that are compared; empty: the profile's.",
        json_schema_extra={"uniqueItems": True},
    )
    seeds: Annotated[list[Seed], Distinct] = Field(
        default=[],
        description="Each arm is trained once a seed; empty: the profile's.",
        json_schema_extra={"uniqueItems": True},
    )
    limit: int | None = Field(
        default=None, ge=1, le=100_000, description="Draw only N problems of the pool, for a cheap trial."
    )
    pools: list[Text] = Field(
        default=[],
        description="Files of problems (JSONL, Parquet), named sets, or sets on the hub, instead of the profile's.",
    )
    data: Text | None = Field(
        default=None, description="Folder of the sources' files on the workers; empty: their VARBAND_DATA."
    )
    model: Text | None = Field(
        default=None,
        description="Its folder on the workers, OWNER/NAME@COMMIT, or sha256:… of one; empty: the profile's.",
    )
    stands_on: list[ArmForm] = Field(
        default=[], description="Arms with a base model or an adapter of their own, and arms that are only evaluated."
    )
    encoder: Text | None = Field(default=None, description="Folder of the sentence encoder, or sha256:… likewise.")
    engine: EngineName = Field(default="auto", description="What samples; auto: vLLM where it runs, else transformers.")
    settings: list[SettingForm] = Field(default=[], description="Other numbers of the profile, e.g. training.steps 80.")
    file: FileText = Field(
        default="",
        description="A study of your own: the text of its study.toml, instead of a profile (docs/studies.md).",
        json_schema_extra={"format": "textarea"},
    )
    name: Annotated[str, Field(pattern=rf"^({NAME.pattern})?$")] = Field(
        default="",
        description="What to call it in Prefect's list and wherever runs and reports are listed: letters, digits, dots"
        " and dashes.",
    )
    question: Annotated[str, Field(max_length=200)] = Field(
        default="", description="One of the questions that the file, or the profile, asks; empty: the study itself."
    )

    def request(self) -> Request:
        named = named_in(self.file)
        word = f"{named or self.name or 'study'}{ENDING}" if self.file else self.profile
        own = [setting for arm in self.stands_on for setting in arm.settings()]
        return Request(
            profile="/".join(filter(None, (word, self.question))),
            text=self.file,
            name=self.name if named or not self.file else "",
            data=self.data,
            encoder=self.encoder,
            settings=(
                *short_settings({name: value for name, value in self if name in SHORT}),
                *own,
                *(f"{s.field}={s.value}" for s in self.settings),
            ),
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


class SearchForm(BaseModel):
    """How its policies are searched at test time, before training and after."""

    model_config = FORM | ConfigDict(title="Search")
    methods: list[MethodName] = Field(
        min_length=1,
        description="Each by its name, with parameters where wanted: majority:width=8",
        json_schema_extra={"uniqueItems": True},
    )
    tokens: int | None = Field(
        default=None, ge=1, le=10**9, description="Of prompts and completions, a problem; empty: the profile's."
    )
    reward: Text | None = Field(
        default=None, description="Folder of a reward model on the workers, for methods that are scored by one."
    )

    def of(self, study: StudyForm) -> StudyForm:
        """The study that is searched so."""
        asked = {"methods": ",".join(self.methods), "tokens": self.tokens, "reward": self.reward}
        more = [SettingForm(field=f"search.{name}", value=str(v)) for name, v in asked.items() if v is not None]
        return study.model_copy(update={"settings": [*study.settings, *more]})


class BudgetForm(BaseModel):
    """The most that the run may spend, over all its attempts. At the wall it is parked and asks for more."""

    model_config = FORM | ConfigDict(title="Budget")
    tokens: float | None = Field(default=None, gt=0, le=MOST, description="Prompt and completion tokens.")
    gpu_hours: float | None = Field(default=None, gt=0, le=MOST, description="Devices × hours.")
    usd: float | None = Field(
        default=None,
        gt=0,
        le=MOST,
        description="US dollars, at the team's prices (prices.toml in the root), else list prices.",
    )

    def budget(self) -> Budget:
        return Budget(tokens=self.tokens, gpu_hours=self.gpu_hours, usd=self.usd)

    def over(self, usual: Budget) -> BudgetForm:
        """What is left empty is the study's own."""
        return BudgetForm(**self.budget().over(usual).limits())

    def raised(self, by: BudgetForm) -> BudgetForm:
        """Each limit plus what the other adds to it, up to what a limit may be; a limit that is not there stays so."""
        mine, more = self.model_dump(), by.model_dump()
        return BudgetForm(**{n: None if v is None else min(v + (more[n] or 0), MOST) for n, v in mine.items()})
