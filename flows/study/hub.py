"""Models, adapters and problems by their id on the hub: `OWNER/NAME@COMMIT`. A commit, never a branch: one name is to
mean one set of weights, or of problems, for ever."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from storage.errors import NotHere, UserError
from tasks.domain.problems.sources import SourceSpec, source_spec
from tasks.engines.environment import quiet_libraries
from tasks.engines.problems.hub import asked_of_hub, fetch_source

COMMIT = re.compile(r"[0-9a-f]{40}")


def on_hub(name: str) -> bool:
    """
    >>> on_hub("Qwen/Qwen3-30B-A3B@" + "0" * 40), on_hub("models/mine"), on_hub("sha256:00")
    (True, False, False)
    """
    return "@" in name and not Path(name).exists()


def called(name: str) -> str:
    """What a model is called for people: the last part of its folder or id.

    >>> called("Qwen/Qwen3-30B-A3B@" + "0" * 40), called("models/mine")
    ('Qwen3-30B-A3B', 'mine')
    """
    return Path(name.partition("@")[0] if on_hub(name) else name).name


def id_of(name: str) -> tuple[str, str]:
    """(OWNER/NAME, commit). Errors: UserError for an id without a commit."""
    owner_name, _, commit = name.partition("@")
    if owner_name.count("/") != 1 or not COMMIT.fullmatch(commit):
        raise UserError(f"'{name[:100]}' is no id on the hub: write OWNER/NAME@ and the 40 hex digits of a commit")
    return owner_name, commit


def hub_folder(name: str, files: Sequence[str], *, fetch: bool) -> Path:
    """Where the files of an id lie on this machine, fetched first if need be. files: patterns.

    Errors: UserError for an id without a commit; NotHere, with what to do, if it is not here and cannot be fetched.
    """
    owner_name, commit = id_of(name)
    fetching = f"hf download {owner_name} --revision {commit} --local-dir {called(name)}"
    way_out = f"download it with: {fetching}, and name that folder"
    quiet_libraries()
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        said = f"{name}: huggingface_hub is not installed (pip install 'varband[hub]'), or {way_out}"
        raise NotHere(name, said) from None
    try:
        return Path(snapshot_download(owner_name, revision=commit, allow_patterns=[*files], local_files_only=not fetch))
    except (OSError, ValueError, RuntimeError) as error:  # its errors of the net and of gated or missing ids are these
        said = _why(error) if fetch else "it is not on this machine"
        raise NotHere(name, f"{name}: {said}; where there is a network, {way_out}") from None


def _why(error: Exception) -> str:
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE and isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return "it is not on this machine, which HF_HUB_OFFLINE keeps from the hub"
    if isinstance(error, errors.GatedRepoError):
        return "it is gated: ask for access on its page, and say who you are with: hf auth login"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the hub has no such commit of it"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub has none of this name, or keeps it to those who own it"
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def found_source(wish: str | Path, data: Path | None, folder: Path, *, fetch: bool) -> tuple[SourceSpec, Path]:
    """As source_spec, and from the hub `NAME@COMMIT` and `OWNER/NAME@COMMIT`. folder: where problems from the hub lie.
    fetch: those that do not. Errors: UserError; NotHere."""
    if not on_hub(str(wish)):
        return source_spec(wish, data)
    quiet_libraries()
    entry, commits = asked_of_hub(str(wish))
    return fetch_source(entry, commits, folder, fetch=fetch)


def unfound(wish: str | Path) -> SourceSpec:
    """A source that is not on this machine: what it is can be said, and not what it holds."""
    return SourceSpec(Path(str(wish).partition("@")[0]).name, f"not here: {wish}")
