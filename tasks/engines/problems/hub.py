"""Problems from the hub, each source at a commit that somebody named: fetched once, then files like all others."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.problems.sources import MATH_SUBJECTS, HubSpec, Source, source_named
from tasks.engines.problems.problem_files import Row, row_of


def load_hub(source: Source, revision: str | None, *, loader: str | None = None, **files: Any) -> list[Row]:
    """Rows of a hub dataset at a pinned revision (a commit, never a branch).

    loader and files: another builder of `datasets` in place of the hub (`json`, data_files=…).
    Errors: UserError without a revision, for columns that are not there, or if the hub cannot be reached.
    """
    revision = revision or source.revision
    if loader is None and not re.fullmatch(r"[0-9a-f]{40}", revision or ""):
        raise UserError(
            f"source {source.name}: {source.hub} needs a commit, --revision {source.name}=<40 hex digits>,"
            f" found {revision!r:.60}"
        )
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise UserError("datasets from the hub need the extra: pip install 'varband[hub]'") from None
    rows: list[Row] = []
    for config in _configurations(source, loader):
        try:
            data = load_dataset(loader or source.hub, config, split=source.split, revision=revision, **files)
        except (OSError, ValueError, DatasetsError) as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"source {source.name}: {source.hub} at {revision} could not be loaded ({said[:120]})"
            ) from None
        for number, record in enumerate(data):
            where = f"{source.hub}{f'/{config}' if config else ''}, row {number + 1}"
            rows.append(_from_hub(source, dict(record), where, config, number))
    return rows


def fetch_source(name: str, revisions: dict[str, str], folder: Path) -> tuple[HubSpec, Path]:
    """A source and what it must keep out, from the hub into files below `folder`, once for each commit.

    revisions: source → commit. Errors: UserError, see `load_hub`; no file is left half written.
    """
    entry = source_named(name)
    place = folder / "-".join([name, *(str(revisions.get(n))[:12] for n in (name, *entry.keeps_out))])
    digests, hub = {}, []
    for one in (entry, *map(source_named, entry.keeps_out)):
        revision, path = revisions.get(one.name) or one.revision, place / one.file
        if not path.is_file():
            rows = load_hub(one, revision)
            place.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(".part")
            aside.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            aside.replace(path)
        with path.open("rb") as file:
            digests[one.name] = hashlib.file_digest(file, "sha256").hexdigest()
        hub.append((one.name, one.hub, str(revision)))
    guards = tuple((other, digests[other]) for other in entry.keeps_out)
    return HubSpec(name, digests[name], None, guards, tuple(hub)), place / entry.file


def _configurations(source: Source, loader: str | None) -> tuple[str | None, ...]:
    if loader is not None:
        return (None,)
    return MATH_SUBJECTS if source.name == "math_train" else (source.config,)


def _from_hub(source: Source, record: Row, where: str, config: str | None, number: int) -> Row:
    from tasks.domain.grading.answer_extraction import boxed

    fields: Row = {}
    for ours, theirs in source.columns:
        if theirs not in record:
            raise UserError(f"{where}: no column '{theirs}' (found: {', '.join(record)})")
        fields[ours] = record[theirs]
    gold = fields["gold"]
    if source.rule == "hashes":
        gold = str(gold).rpartition("####")[2].strip().replace(",", "")
    elif source.rule == "boxed":
        gold = (boxed(str(gold))[0] or [""])[-1]
    elif source.rule == "first":
        gold = ", ".join(str(g).strip().strip("$") for g in gold) if isinstance(gold, list) else gold
    name = "_".join(filter(None, [source.name, config]))
    return row_of({**fields, "gold": gold, "source_id": f"{name}__{number}"}, where, source.name, number)
