"""What a deployment of one study is filled in with: its file's text, beside what people entered."""

from __future__ import annotations

from difflib import ndiff
from typing import Any

Json = dict[str, Any]


def filled(theirs: Any, ours: Any) -> Any:
    """What people entered, with what is ours in it: fields by name, of a list the first.

    >>> filled({"budget": {"usd": 5}, "study": {"file": "old", "seeds": [1]}}, {"study": {"file": "new"}})
    {'budget': {'usd': 5}, 'study': {'file': 'new', 'seeds': [1]}}
    >>> filled({"studies": [{"file": "old"}, {"profile": "demo"}]}, {"studies": [{"file": "new"}]})
    {'studies': [{'file': 'new'}, {'profile': 'demo'}]}
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs | {name: filled(theirs.get(name), value) for name, value in ours.items()}
    if isinstance(theirs, list) and isinstance(ours, list) and theirs:
        return [filled(theirs[0], ours[0]), *theirs[1:]]
    return ours


def changed_text(before: Json, now: Json) -> str:
    """Of parameters, how the study's text differs. Files of one name share a deployment: who deploys the second sees
    that it was not theirs.

    >>> def of(text):
    ...     return {"studies": [{"file": text}]}
    >>> changed_text(of("base = 'demo'\\nseeds = 3"), of("base = 'demo'\\nseeds = 5\\nmodel = 'small'"))
    ', its text changed by 1 line less and 2 more'
    >>> changed_text(of("base = 'demo'"), of("base = 'demo'"))
    ''
    """
    marks = [line[0] for line in ndiff(_text(before).splitlines(), _text(now).splitlines())]
    less, more = marks.count("-"), marks.count("+")
    return f", its text changed by {less} line{'s' * (less != 1)} less and {more} more" if less + more else ""


def _text(parameters: Json) -> str:
    study = parameters.get("study") or next(iter(parameters.get("studies") or []), {})
    return study.get("file") or ""
