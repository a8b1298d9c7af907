"""Problems from files and from the hub, in one form: rows with problem, gold, source, source_id and what is known.

Everything wrong with a file is one sentence that names file, line and field, before anything is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.sources import MATH_SUBJECTS, Source

Row = dict[str, Any]
OPTIONAL = ("year", "level", "subject")


def load_problems(files: Iterable[tuple[Path, str, str | None]], limit: int | None = None) -> list[Row]:
    """Rows of several files, in order: each (path, name of the source, `source` value to keep or null for all).

    Errors: UserError for unreadable, incomplete or repeated rows.
    """
    rows = [row for path, name, only in files for row in read_problems(path, name, only)]
    return rows if limit is None else rows[:limit]


#: What files call the identity of a problem, the first that is there.
ID_FIELDS = ("source_id", "uid", "id")


def read_problems(path: Path, name: str, only: str | None = None) -> list[Row]:
    """Rows of a JSONL or Parquet file: problem, gold; optional: one of ID_FIELDS, source, year, level, subject."""
    records = _parquet(path) if path.suffix.lower() == ".parquet" else _jsonl(path)
    rows: list[Row] = []
    seen: dict[str, str] = {}
    for place, record in records:
        where = f"{path}, {place}"
        row = _row(record, where, name, len(rows))
        first = seen.setdefault(f"{row['source']}\0{row['source_id']}", place)
        if first != place:
            raise UserError(f"{where}: the id {row['source_id']!r} stands in {first} already; ids must be unique")
        if only is None or row["source"] == only:
            rows.append(row)
    if not rows:
        wanted = f" with source {only!r}" if only else ""
        raise UserError(f"{path}: holds no problems{wanted}")
    return rows


def _row(record: Any, where: str, name: str, position: int) -> Row:
    if not isinstance(record, dict):
        raise UserError(f"{where}: expected an object with fields problem and gold, found {type(record).__name__}")
    for field in ("problem", "gold"):
        if field not in record:
            raise UserError(f"{where}: no field '{field}' (found: {', '.join(map(str, record)) or 'nothing'})")
        value = record[field]
        if field == "gold" and isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"{where}: field '{field}' must be text and not empty, found {value!r:.60}")
    source_id = next((record[field] for field in ID_FIELDS if field in record), None)
    for field in ("source",):
        if record.get(field) is not None and (not isinstance(record[field], str) or not record[field].strip()):
            raise UserError(f"{where}: field '{field}' must be text, found {record[field]!r:.60}")
    if source_id is not None and not isinstance(source_id, str | int):
        raise UserError(f"{where}: field 'source_id' must be text, found {source_id!r:.60}")
    year = record.get("year")
    if year is not None and (isinstance(year, bool) or not isinstance(year, int)):
        raise UserError(f"{where}: field 'year' must be a whole number, found {year!r:.60}")
    return {
        "problem": record["problem"],
        "gold": str(record["gold"]),
        "source": record.get("source") or name,
        "source_id": str(source_id) if source_id is not None else f"{name}__{position}",
        "year": year,
        "level": None if record.get("level") is None else str(record["level"]),
        "subject": None if record.get("subject") is None else str(record["subject"]),
    }


def _jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: byte {error.start + 1} is not UTF-8; save the file as UTF-8"
            ) from None
        try:
            yield f"line {number}", json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(
                f"{path}, line {number}: is not JSON ({getattr(error, 'msg', 'nested too deeply')})"
            ) from None


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: is not a readable Parquet file ({str(error).splitlines()[0][:100]})") from None
    missing = [field for field in ("problem", "gold") if field not in table.column_names]
    if missing:
        raise UserError(f"{path}: no column '{missing[0]}' (found: {', '.join(table.column_names)})")
    for number, record in enumerate(table.to_pylist(), start=1):
        yield f"row {number}", record


def load_hub(source: Source, revision: str | None, *, loader: str | None = None, **files: Any) -> list[Row]:
    """Rows of a hub dataset at a pinned revision (a commit, never a branch).

    loader and files: another builder of `datasets` in place of the hub (`json`, data_files=…).
    Errors: UserError without a revision, for columns that are not there, or if the hub cannot be reached.
    """
    if loader is None and (revision is None or len(revision) != 40):
        raise UserError(f"source {source.name}: {source.hub} needs --revision with a commit's 40 hex digits")
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError("datasets from the hub need the extra: pip install 'varband[hub]'") from None
    rows: list[Row] = []
    for config in _configurations(source, loader):
        try:
            data = load_dataset(loader or source.hub, config, split=source.split, revision=revision, **files)
        except (OSError, ValueError) as error:
            raise UserError(
                f"source {source.name}: {source.hub} could not be loaded ({str(error).splitlines()[0][:120]})"
            ) from None
        for number, record in enumerate(data):
            where = f"{source.hub}{f'/{config}' if config else ''}, row {number + 1}"
            rows.append(_from_hub(source, dict(record), where, config, number))
    return rows


def _configurations(source: Source, loader: str | None) -> tuple[str | None, ...]:
    if loader is not None:
        return (None,)
    return MATH_SUBJECTS if source.name == "math_train" else (source.config,)


def _from_hub(source: Source, record: Row, where: str, config: str | None, number: int) -> Row:
    from tasks.domain.commitment import boxed

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
    return _row({**fields, "gold": gold, "source_id": f"{name}__{number}"}, where, source.name, number)
