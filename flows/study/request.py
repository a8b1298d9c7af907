"""A request for a study: a profile and changes, the same from the command line, a form and a run record."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from flows.study.files import prefixes
from flows.study.lookup import check_study_name, file_of, profile_of
from flows.study.resolve import Study, resolve
from flows.study.set_option import overridden
from storage.artifacts.store import Store
from storage.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Plain values only, so that it can be kept as JSON. Empty means: as the profile has it. Holds no secret.

    profile: a built-in one, or the file of a study; text: of that file when the request was made. name: a label.
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
        settings = list(self.settings)
        settings += [f"arms={','.join(self.arms)}"] if self.arms else []
        settings += [f"seeds={','.join(map(str, self.seeds))},"] if self.seeds else []
        settings += [f"hardware.engine={self.engine}"] if self.engine != "auto" else []
        settings += [f"pool.limit={self.limit}"] if self.limit else []
        profile = overridden(profile_of(self.profile, self.text), settings)
        if self.name:
            check_study_name(self.name, "--name", "choose another")
            profile = replace(profile, title=self.name)
        path, question = file_of(self.profile) or (Path(self.profile), "")
        study = resolve(
            profile,
            store,
            model=_path(self.model),
            encoder=_path(self.encoder),
            data=_path(self.data),
            pools=[Path(p) for p in self.pools],
            planning=planning,
            prefix=prefixes(path.name, self.text, question, settings),
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
            raise UserError(f"the run was requested by another version ({words}): run it again")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in kept.items()})  # type: ignore[arg-type]


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
