"""Problem files, converted to rows with problem, gold, source, source_id and optional fields.

An error is one sentence naming file, line and field, before anything is built from the file.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.grading.latex_normalisation import normalise
from tasks.domain.grading.reading import MAX_ANSWER_CHARS

Row = dict[str, Any]
#: The solution before the answer in GSM8K's files.
GSM8K = re.compile(r"\A.*^#### *(?=\S)", re.DOTALL | re.MULTILINE)
MAX_YEAR = 9999


def load_problems(files: Iterable[tuple[Path, str, str | None]]) -> list[Row]:
    """Return the rows of several files, in order: each (path, name of the source, `source` value to keep, or None for
    all). Errors: UserError for unreadable, incomplete or repeated rows."""
    return [row for path, name, only in files for row in read_problems(path, name, only)]


#: Accepted names of the fields for a problem and its answer, ours first.
COLUMNS = (("problem", ("problem", "question")), ("gold", ("gold", "answer")))
#: Accepted names of the field with a problem's identity; the first that exists is used.
ID_FIELDS = ("source_id", "uid", "id")


def read_problems(path: Path, name: str, only: str | None = None) -> list[Row]:
    """Read a JSONL, JSON, CSV or Parquet file: COLUMNS; optional: one of ID_FIELDS, source, year, level, subject."""
    records = _READERS.get(path.suffix.lower(), _jsonl)(path)
    rows: list[Row] = []
    seen: dict[str, str] = {}
    for place, record in records:
        where = f"{path}, {place}"
        row = row_of(record, where, name, len(rows))
        first = seen.setdefault(f"{row['source']}\0{row['source_id']}", place)
        if first != place:
            raise UserError(f"{where}: the id {row['source_id']!r} is also in {first}; ids must be unique")
        if only is None or row["source"] == only:
            rows.append(row)
    if not rows:
        wanted = f" with source {only!r}" if only else ""
        raise UserError(f"{path}: holds no problems{wanted}")
    return rows


def row_of(record: dict[str, Any], where: str, name: str, position: int) -> Row:
    """Convert a record to a problem. where: file and place, for errors. Errors: UserError naming the field."""
    theirs = dict(columns_of(record))
    for field, names in COLUMNS:
        if theirs[field] not in record:
            wanted = " or ".join(f"'{name}'" for name in names)
            raise UserError(f"{where}: no field {wanted} (found: {', '.join(map(str, record)) or 'nothing'})")
        if len({str(record[name]).strip() for name in names if name in record}) > 1:
            both = " and ".join(f"'{name}'" for name in names)
            raise UserError(f"{where}: fields {both} differ; keep the right one and remove or rename the other")
    problem, gold = (_text(record, theirs[field], where) for field in ("problem", "gold"))
    source = _text(record, "source", where)
    if problem is None:
        name = theirs["problem"]
        raise UserError(f"{where}: field '{name}' must be non-empty text, found {record[name]!r:.60}")
    gold = GSM8K.sub("", gold) if gold else gold
    if gold is None or not re.search(r"\w|\\\{ ?\\\}", normalise(gold[:MAX_ANSWER_CHARS])):
        name = theirs["gold"]
        raise UserError(f"{where}: field '{name}' must be non-empty text, found {record[name]!r:.60}")
    if len(gold) > MAX_ANSWER_CHARS:
        raise UserError(
            f"{where}: field '{theirs['gold']}' has {len(gold):,} characters,"
            f" at most {MAX_ANSWER_CHARS:,} can be graded"
        )
    source_id = next((record[field] for field in ID_FIELDS if field in record), None)
    if source_id is not None and (isinstance(source_id, bool) or not isinstance(source_id, str | int)):
        raise UserError(f"{where}: field 'source_id' must be text, found {source_id!r:.60}")
    year = record.get("year")
    if isinstance(year, float):  # of pandas, whose whole numbers with a gap are floats
        year = None if math.isnan(year) else int(year) if year.is_integer() else year
    if isinstance(year, str) and re.fullmatch(r"\d{1,4}(?:\.0)?", year):  # of CSV
        year = int(float(year))
    if year is not None and (isinstance(year, bool) or not isinstance(year, int) or abs(year) > MAX_YEAR):
        raise UserError(f"{where}: field 'year' must be a whole number, found {year!r:.60}")
    return {
        "problem": problem,
        "gold": gold,
        "source": source or name,
        "source_id": str(source_id) if source_id not in (None, "") else f"{name}__{position}",
        "year": year,
        "level": _text(record, "level", where),
        "subject": _text(record, "subject", where),
    }


def columns_of(record: Row) -> list[tuple[str, str]]:
    """Return (our name, name in the file) of each field; our name if the file has none."""
    return [(ours, next((one for one in theirs if one in record), ours)) for ours, theirs in COLUMNS]


def _text(record: dict[str, Any], field: str, where: str) -> str | None:
    """Return a field's text, also of a number if allowed; None if it is empty. Errors: UserError."""
    value = record.get(field)
    text = value
    if field in ("gold", "answer", "level") and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UserError(f"{where}: field '{field}' must be text or a finite number, found {value!r}")
        text = str(value)
    if text is None:
        return None
    if not isinstance(text, str):
        empty = " and not empty" if field in {name for _, names in COLUMNS for name in names} else ""
        raise UserError(f"{where}: field '{field}' must be text{empty}, found {value!r:.60}")
    if lone := re.search(r"[\ud800-\udfff]", text):
        raise UserError(f"{where}: field '{field}' contains half of a UTF-16 character pair ({ascii(lone[0])[1:-1]})")
    return text if text.strip() else None


def _jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    return json_lines(raw, str(path), "problem and gold")


def json_lines(raw: bytes, name: str, fields: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) of every line that is not blank, or of every entry of one JSON array. fields: description
    of the expected fields. Errors: UserError for invalid UTF-8, invalid JSON or a value that is no object."""
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if raw.lstrip()[:1] == b"[":
        entries = [(f"entry {n}", entry) for n, entry in enumerate(_decoded(raw, name), start=1)]
    else:
        lines = ((f"line {n}", line) for n, line in enumerate(raw.split(b"\n"), start=1) if line.strip())
        entries = ((place, _decoded(line, f"{name}, {place}")) for place, line in lines)
    for place, entry in entries:
        if not isinstance(entry, dict):
            raise UserError(f"{name}, {place}: expected an object with {fields}, found {type(entry).__name__}")
        yield place, entry


def _decoded(text: bytes, where: str) -> Any:
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: is not JSON ({error.msg}); write one object per line") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: cannot be read ({error})") from None


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: is not a readable Parquet file ({str(error).splitlines()[0][:100]})") from None
    missing = [names[0] for _, names in COLUMNS if not {*names} & {*table.column_names}]
    if missing:
        raise UserError(f"{path}: no column '{missing[0]}' (found: {', '.join(table.column_names)})")
    for number, record in enumerate(table.to_pylist(), start=1):
        yield f"row {number}", record


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield rows with the names in the first line; empty cells are left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            for number, row in enumerate(csv.DictReader(handle), start=1):
                if None in row or None in row.values():
                    raise UserError(f"{path}, row {number}: the number of cells differs from that of the first line")
                yield f"row {number}", {name: cell for name, cell in row.items() if cell.strip() or name in _NAMED}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: is not readable CSV in UTF-8 ({error})") from None


_NAMED = {name for _, names in COLUMNS for name in names}
_READERS = {".parquet": _parquet, ".csv": _csv}
