"""JSON lines from users. An error is one sentence naming file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from storage.errors import UserError

_UTF8 = b"\xef\xbb\xbf"


def json_lines(raw: bytes, name: str, fields: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) of every line that is not blank, or of every entry of one JSON array. fields: description
    of the expected fields. Errors: UserError for invalid UTF-8, invalid JSON or a value that is no object."""
    raw = raw.removeprefix(_UTF8)
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
        raise UserError(f"{where}: is not JSON ({error.msg}); write one object a line") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: cannot be read ({error})") from None
