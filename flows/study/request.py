"""What somebody asks for: a profile and wishes. The command line, a form and a run record all say it in these words."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from flows.study.asked import check_name, file_of, profile_asked
from flows.study.lines import said_at
from flows.study.resolve import Study, resolve
from flows.study.settings import overridden
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.engines.hardware import ENGINES


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Plain values only, so that it can be kept as JSON. Empty means: as the profile has it. Holds no secret.

    profile: a built-in one, or the file of a study; text: what that file said when it was asked for. name: what people
    call it, a label.
    """

    profile: str
    settings: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    pools: tuple[str, ...] = ()
    limit: int | None = None
    data: str | None = None
    model: str | None = None
    encoder: str | None = None
    engine: str = "auto"
    plain: bool = False
    text: str = ""
    name: str = ""

    def study(self, store: Store, *, planning: bool = False) -> Study:
        """planning: as resolve. Errors: UserError for whatever is unknown, missing or not what it should be."""
        wishes = list(self.settings)
        wishes += [f"arms={','.join(self.arms)}"] if self.arms else []
        wishes += [f"seeds={','.join(map(str, self.seeds))},"] if self.seeds else []
        wishes += [f"pool.limit={self.limit}"] if self.limit else []
        if self.engine not in ENGINES:
            raise UserError(f"unknown engine '{self.engine}' (known: {', '.join(ENGINES)})")
        profile = overridden(profile_asked(self.profile, self.text), wishes)
        if self.name:
            check_name(self.name, "--name", "choose another")
            profile = replace(profile, title=self.name)
        if self.engine != "auto":
            profile = replace(profile, hardware=replace(profile.hardware, engine=self.engine))
        path, question = file_of(self.profile) or (Path(self.profile), "")
        study = resolve(
            profile,
            store,
            model=_path(self.model),
            encoder=_path(self.encoder),
            data=_path(self.data),
            pools=[Path(p) for p in self.pools],
            planning=planning,
            said_at=said_at(path.name, self.text, question, wishes),
        )
        return replace(study, command=self.command())

    def command(self) -> str:
        """What asks for the same on the command line."""
        words = ["varband", "run", self.profile]
        for option, value in (
            ("name", self.name),
            ("arms", ",".join(self.arms)),
            ("seeds", ",".join(map(str, self.seeds))),
            ("limit", self.limit),
            ("data", self.data),
            ("model", self.model),
            ("encoder", self.encoder),
            ("engine", None if self.engine == "auto" else self.engine),
        ):
            words += [f"--{option}", str(value)] if value else []
        words += [word for pool in self.pools for word in ("--pool", pool)]
        words += [word for setting in self.settings for word in ("--set", setting)]
        return shlex.join([*words, "--plain"] if self.plain else words)

    def as_json(self) -> dict[str, object]:
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, kept: dict[str, object]) -> Request:
        """Errors: UserError for a request of another version."""
        unknown = set(kept) - {f.name for f in fields(cls)}
        if unknown or "profile" not in kept:
            words = ", ".join(sorted(unknown)) or "no profile"
            raise UserError(f"the run was asked for in words of another version ({words}): run it again")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in kept.items()})  # type: ignore[arg-type]


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
