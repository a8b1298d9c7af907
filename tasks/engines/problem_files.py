"""Problem files, converted to rows with problem, gold, source, source_id and optional fields.

An error is one sentence with file, line and field, and comes before anything is built from the file.
"""

import codecs
import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from storage.artifacts.fingerprint import file_digest
from storage.errors import NotHere, UserError
from storage.roots import write_durably
from tasks.domain.grading.reading import MAX_ANSWER_CHARS
from tasks.domain.problems.sources import MATH_SUBJECTS, SOURCES, HubSpec, Source, source_named
from tasks.domain.ranges import refused_by, sentence

Row = dict[str, Any]
#: The part before the answer in the solutions of GSM8K's files.
GSM8K = re.compile(r"\A.*^#### *(?=\S)", re.DOTALL | re.MULTILINE)
MAX_YEAR = 9999


def load_problems(files: Iterable[tuple[Path, str, str | None]]) -> list[Row]:
    """Return the rows of several files, in order. Each file is (path, name of the source, `source` value to keep, or
    None for all). Raise UserError for unreadable, incomplete or repeated rows."""
    return [row for path, name, only in files for row in read_problems(path, name, only)]


#: Accepted names of the fields for a problem and its answer. The first one is ours.
COLUMNS = (("problem", ("problem", "question")), ("gold", ("gold", "answer")))
#: Accepted names of the field that identifies a problem. The first one that exists is used.
ID_FIELDS = ("source_id", "uid", "id")


def read_problems(path: Path, name: str, only: str | None = None) -> list[Row]:
    """Return the problems of a JSONL, JSON, CSV or Parquet file. Required fields: COLUMNS. Optional fields: one of
    ID_FIELDS, source, year, level, subject."""
    records = records_of(path, "problem and gold")
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
        raise UserError(f"{path} has no problems{wanted}")
    return rows


def _as_text(value: Any) -> Any:
    """Return a number as text, and any other value unchanged."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return str(value) if number else value


def _check_text(text: str) -> None:
    if not text.strip():
        raise UserError("it must be a text that is not empty")


def _check_gold(gold: str) -> None:
    _check_text(gold)
    if len(gold) > MAX_ANSWER_CHARS:
        raise UserError(f"it has {len(gold):,} characters, but at most {MAX_ANSWER_CHARS:,} can be graded")


def _named(field: str) -> Any:
    return Field(validation_alias=AliasChoices(*dict(COLUMNS)[field]))


#: A text that can be stored. With any pattern, even an empty one, pydantic rejects half of a UTF-16 pair.
Unicode = Annotated[str, Field(pattern="")]
Text = Annotated[
    Unicode | None, BeforeValidator(lambda x: None if isinstance(x, str) and not x.strip() else _as_text(x))
]
#: A year. If a column has gaps, pandas writes whole numbers as floats, and a gap as NaN.
Year = Annotated[
    Annotated[int, Field(ge=-MAX_YEAR, le=MAX_YEAR)] | None, BeforeValidator(lambda x: None if x != x else x)
]


class Problem(BaseModel):
    """One record of a problem file."""

    problem: Annotated[Unicode, refused_by(_check_text)] = _named("problem")
    gold: Annotated[
        Unicode, BeforeValidator(_as_text), AfterValidator(lambda gold: GSM8K.sub("", gold)), refused_by(_check_gold)
    ] = _named("gold")
    source: Text = None
    source_id: Text = Field(default=None, validation_alias=AliasChoices(*ID_FIELDS))
    year: Year = None
    level: Text = None
    subject: Text = None


def row_of(record: dict[str, Any], where: str, name: str, position: int) -> Row:
    """Convert a record to a problem. where: file and line. Raise UserError with the field that is wrong."""
    for _, names in COLUMNS:
        if len({str(record[name]).strip() for name in names if name in record}) > 1:
            both = " and ".join(f"'{name}'" for name in names)
            raise UserError(f"{where}: the fields {both} differ; keep the right one, and remove or rename the other")
    try:
        found = Problem.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "missing":
            wanted = " or ".join(f"'{name}'" for name in dict(COLUMNS).get(str(first["loc"][0]), first["loc"]))
            raise UserError(f"{where}: no field {wanted} (found: {', '.join(map(str, record)) or 'nothing'})") from None
        raise UserError(f"{where}: field '{first['loc'][0]}': {sentence(first)}") from None
    source_id = found.source_id or f"{name}__{position}"
    return found.model_dump() | {"source": found.source or name, "source_id": source_id}


def records_of(path: Path, fields: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of a Parquet or CSV file; any other file is read as JSON. Raise UserError if the file
    cannot be read. fields: description of the expected fields."""
    match path.suffix.lower():
        case ".parquet":
            yield from _parquet(path)
        case ".csv":
            yield from _csv(path)
        case _:
            try:
                raw = path.read_bytes()
            except OSError as error:
                raise UserError(f"{path}: cannot be read ({error.strerror})") from None
            yield from json_lines(raw, str(path), fields)


def json_lines(raw: bytes, name: str, fields: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) of every line that is not blank, or of every entry of one JSON array. Raise UserError for
    invalid UTF-8, invalid JSON or a value that is not an object. fields: description of the expected fields."""
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
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: this is not JSON in UTF-8 ({error}); write one object per line") from None


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0][:100]})") from None
    for number, record in enumerate(table.to_pylist(), start=1):
        yield f"row {number}", record


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield rows by the names in the first line, without empty cells."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            for number, row in enumerate(csv.DictReader(handle), start=1):
                if None in row or None in row.values():
                    raise UserError(f"{path}, row {number}: the number of cells differs from that of the first line")
                yield f"row {number}", {name: cell for name, cell in row.items() if cell.strip() or name in _NAMED}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not readable CSV in UTF-8 ({error})") from None


_NAMED = {name for _, names in COLUMNS for name in names}


# ---- problem sets of the hub


_WISH = re.compile(
    r"(?P<id>[\w.-]+(?:/[\w.-]+)?)@(?P<commit>[0-9a-f]{40})(?::(?P<split>\w+))?(?P<more>(?:\+\w+@[0-9a-f]{40})*)"
)


def parse_hub_name(wish: str) -> tuple[Source, dict[str, str]]:
    """Parse `NAME@COMMIT` (a known set) or `OWNER/NAME@COMMIT:SPLIT` into a source and its commits by source. Sets with
    which a known set must not overlap follow after a `+`. Raise UserError if the text cannot be parsed.

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
            raise UserError(f"source {parsed['id']}: the split of a known set is fixed; remove :{parsed['split']}")
        return source_named(parsed["id"]), commits | {parsed["id"]: parsed["commit"]}
    if known := [one.name for one in SOURCES.values() if one.hub == parsed["id"]]:
        raise UserError(f"{parsed['id']} is a known set: write {' or '.join(f'{name}@COMMIT' for name in known)}")
    name, split = parsed["id"].partition("/")[2], parsed["split"] or "train"
    file = f"{name}.jsonl" if split == "train" else f"{name}-{split}.jsonl"
    return Source(name=name, file=file, hub=parsed["id"], split=split, columns=()), {name: parsed["commit"]}


def load_hub(source: Source, revision: str | None) -> list[Row]:
    """Return rows of a hub dataset at a fixed commit (never a branch). Raise UserError without a commit or for missing
    columns; NotHere if the hub cannot be reached, lacks the dataset, or restricts access to it."""
    if not re.fullmatch(r"[0-9a-f]{40}", revision or ""):
        raise UserError(
            f"source {source.name}: {source.hub} needs a commit, but {revision!r:.60} was found; write {source.name}@"
            " and 40 hex digits"
        )
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise UserError("a set from the hub needs the package datasets: pip install 'varband[hub]'") from None
    rows: list[Row] = []
    for config in MATH_SUBJECTS if source.name == "math_train" else (source.config,):
        try:
            data = load_dataset(source.hub, config, split=source.split, revision=revision)
        except (OSError, ValueError, StopIteration, DatasetsError) as error:  # StopIteration: a file without a line
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise NotHere(f"{source.hub}@{revision}", f"it could not be loaded ({line[:160]})") from None
        for number, record in enumerate(data):
            where = f"{source.hub}{f'/{config}' if config else ''}, row {number + 1}"
            rows.append(_from_hub(source, dict(record), where, config, number))
    return rows


def fetch_source(
    entry: Source, revisions: Mapping[str, str], folder: Path, *, fetch: bool = True
) -> tuple[HubSpec, Path]:
    """Return a source with the evaluation sets that its problems must not overlap with, and the path of its file.

    Missing files are downloaded once per commit, and written atomically below `folder`. Raise UserError as `load_hub`
    does, and NotHere, with the path for the file, if a file cannot be downloaded. revisions: source → commit. fetch:
    whether files may be downloaded.
    """
    name = entry.name if entry.columns else entry.hub.replace("/", "--")
    place = folder / "-".join([name, *(str(revisions.get(n))[:12] for n in (entry.name, *entry.keeps_out))])
    digests, hub = {}, []
    for one in (entry, *map(source_named, entry.keeps_out)):
        revision, path = revisions.get(one.name), place / one.file
        if not path.is_file():
            rows = _rows_from_hub(one, revision, path, fetch)
            write_durably(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        digests[one.name] = file_digest(path)
        hub.append((one.name, one.hub, str(revision)))
    guards = tuple((other, digests[other]) for other in entry.keeps_out)
    return HubSpec(entry.name, digests[entry.name], None, guards, tuple(hub)), place / entry.file


def _rows_from_hub(source: Source, revision: str | None, path: Path, fetch: bool) -> list[Row]:
    """Return rows from the hub. Raise errors as load_hub does; NotHere also has the path for a manual download."""
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
    from tasks.domain.grading.texts import boxed

    fields: Row = {}
    named = [(ours, next((one for one in theirs if one in record), ours)) for ours, theirs in COLUMNS]
    for ours, theirs in source.columns or named:
        if theirs not in record:
            raise UserError(f"{where}: no column '{theirs}' (found: {', '.join(record)})")
        fields[ours] = record[theirs]
    gold = fields["gold"]
    if source.rule == "hashes":
        gold = str(gold).rpartition("####")[2].strip().replace(",", "")
    elif source.rule == "boxed":
        gold = (boxed(str(gold), beside=False)[0] or [""])[-1]
    elif source.rule == "first":
        gold = ", ".join(str(g).strip().strip("$") for g in gold) if isinstance(gold, list) else gold
    name = "_".join(filter(None, [source.name, config]))
    return row_of({**fields, "gold": gold, "source_id": f"{name}__{number}"}, where, source.name, number)
