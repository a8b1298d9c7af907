"""Problems from the Hugging Face hub, each source at a fixed commit: downloaded once, then read like other files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from storage.errors import NotHere, UserError
from tasks.domain.problems.sources import MATH_SUBJECTS, SOURCES, HubSpec, Source, source_named
from tasks.engines.problems.problem_files import Row, columns_of, row_of

_WISH = re.compile(
    r"(?P<id>[\w.-]+(?:/[\w.-]+)?)@(?P<commit>[0-9a-f]{40})(?::(?P<split>\w+))?(?P<more>(?:\+\w+@[0-9a-f]{40})*)"
)


def parse_hub_name(wish: str) -> tuple[Source, dict[str, str]]:
    """Parse `NAME@COMMIT` (a known set) or `OWNER/NAME@COMMIT:SPLIT` into a source and its commits by source. Commits
    of sets that a known set must not overlap with follow after a `+`. Errors: UserError.

    >>> sorted(parse_hub_name("math_train@" + "a" * 40 + "+math500@" + "b" * 40)[1])
    ['math500', 'math_train']
    >>> source, _ = parse_hub_name("mine/riddles@" + "a" * 40 + ":test")
    >>> source.name, source.hub, source.split
    ('riddles', 'mine/riddles', 'test')
    """
    parsed = _WISH.fullmatch(wish)
    if parsed is None:
        raise UserError(
            f"'{wish[:140]}' is not a hub source: write NAME@COMMIT or OWNER/NAME@COMMIT with the 40 hex digits of a"
            " commit, then :SPLIT unless it is train"
        )
    commits = dict(one.split("@") for one in parsed["more"].split("+") if one)
    if "/" not in parsed["id"]:
        if parsed["split"]:
            raise UserError(f"source {parsed['id']}: a known set has a fixed split; remove :{parsed['split']}")
        return source_named(parsed["id"]), commits | {parsed["id"]: parsed["commit"]}
    if known := [one.name for one in SOURCES.values() if one.hub == parsed["id"]]:
        raise UserError(f"{parsed['id']} is a known set: write {' or '.join(f'{name}@COMMIT' for name in known)}")
    name, split = parsed["id"].partition("/")[2], parsed["split"] or "train"
    file = f"{name}.jsonl" if split == "train" else f"{name}-{split}.jsonl"
    return Source(name=name, file=file, hub=parsed["id"], split=split, columns=()), {name: parsed["commit"]}


def load_hub(source: Source, revision: str | None) -> list[Row]:
    """Return rows of a hub dataset at a pinned commit (never a branch). Errors: UserError without a commit or for
    missing columns; NotHere if the hub cannot be reached, lacks the dataset, or restricts it."""
    if not re.fullmatch(r"[0-9a-f]{40}", revision or ""):
        raise UserError(
            f"source {source.name}: {source.hub} needs a commit: {source.name}@<40 hex digits>, after a + if the set is"
            f" to be kept out; found {revision!r:.60}"
        )
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise UserError("datasets from the hub need the extra: pip install 'varband[hub]'") from None
    rows: list[Row] = []
    for config in MATH_SUBJECTS if source.name == "math_train" else (source.config,):
        try:
            data = load_dataset(source.hub, config, split=source.split, revision=revision)
        except (OSError, ValueError, StopIteration, DatasetsError) as error:  # StopIteration: of files without a line
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise NotHere(f"{source.hub}@{revision}", f"it could not be loaded ({line[:160]})") from None
        for number, record in enumerate(data):
            where = f"{source.hub}{f'/{config}' if config else ''}, row {number + 1}"
            rows.append(_from_hub(source, dict(record), where, config, number))
    return rows


def fetch_source(
    entry: Source, revisions: Mapping[str, str], folder: Path, *, fetch: bool = True
) -> tuple[HubSpec, Path]:
    """Return a source and the evaluation sets that it keeps out, downloaded into files below `folder` once per commit.
    revisions: source → commit. fetch: download missing files. Errors: UserError, see `load_hub`; NotHere, with the path
    for the file, if it cannot be downloaded. Files are written atomically."""
    name = entry.name if entry.columns else entry.hub.replace("/", "--")
    place = folder / "-".join([name, *(str(revisions.get(n))[:12] for n in (entry.name, *entry.keeps_out))])
    digests, hub = {}, []
    for one in (entry, *map(source_named, entry.keeps_out)):
        revision, path = revisions.get(one.name), place / one.file
        if not path.is_file():
            rows = _rows_from_hub(one, revision, path, fetch)
            place.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(f".{os.getpid()}.part")
            aside.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            aside.replace(path)
        with path.open("rb") as file:
            digests[one.name] = hashlib.file_digest(file, "sha256").hexdigest()
        hub.append((one.name, one.hub, str(revision)))
    guards = tuple((other, digests[other]) for other in entry.keeps_out)
    return HubSpec(entry.name, digests[entry.name], None, guards, tuple(hub)), place / entry.file


def _rows_from_hub(source: Source, revision: str | None, path: Path, fetch: bool) -> list[Row]:
    """Return rows from the hub. Errors: see load_hub; NotHere also names the path for a manual download."""
    why = "it is not on this machine"
    if fetch:
        try:
            return load_hub(source, revision)
        except NotHere as error:
            why = str(error)
    raise NotHere(
        f"{source.hub}@{revision}",
        f"source {source.name}: {why}; where there is a network, download it with: hf download {source.hub}"
        f" --repo-type dataset --revision {revision}, and put its problems into {path}, a line of JSON each with"
        " problem and gold",
    ) from None


def _from_hub(source: Source, record: Row, where: str, config: str | None, number: int) -> Row:
    from tasks.domain.grading.regions import boxed

    fields: Row = {}
    for ours, theirs in source.columns or columns_of(record):
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
