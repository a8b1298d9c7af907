"""JSON lines that people bring: every way in which a line can be wrong is one sentence naming file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from storage.errors import UserError

_UTF8 = b"\xef\xbb\xbf"
#: How files begin that are no text in UTF-8, and what they are.
_OTHERS = {
    b"\x1f\x8b": "compressed with gzip: unpack it",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it",
    b"PAR1": "Parquet: call it .parquet",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
}


def json_lines(raw: bytes, name: str, fields: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every line that is not blank, or of every entry of one JSON array.

    fields: what an object should hold, in words.

    Errors: UserError for what is no UTF-8, no JSON, no object, or holds a field twice.
    """
    for start, what in _OTHERS.items():
        if raw.startswith(start):
            raise UserError(f"{name}: is {what}")
    if raw.removeprefix(_UTF8).lstrip()[:1] == b"[":
        entries = _decoded(raw.removeprefix(_UTF8), name)
        for number, entry in enumerate(entries if isinstance(entries, list) else [], start=1):
            yield f"entry {number}", _checked(entry, f"{name}, entry {number}", fields)
        return
    for number, line in enumerate(raw.removeprefix(_UTF8).split(b"\n"), start=1):
        if line.strip():
            yield f"line {number}", _object(line, f"{name}, line {number}", fields)


def _object(line: bytes, where: str, fields: str) -> dict[str, Any]:
    return _checked(_decoded(line, where), where, fields)


def _checked(found: Any, where: str, fields: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UserError(f"{where}: expected an object with {fields}, found {type(found).__name__}")
    return found


def _decoded(line: bytes, where: str) -> Any:
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: is not JSON ({error.msg}); write one object a line") from None
    except RecursionError:
        raise UserError(f"{where}: is nested too deeply") from None
    except _Twice as error:
        raise UserError(f"{where}: field '{error}' stands twice") from None
    except ValueError:
        raise UserError(f"{where}: a number has too many digits; write it as text") from None


class _Twice(Exception):
    """A field's name."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return found
