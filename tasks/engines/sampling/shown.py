"""What a prompt shows beside the problem that it asks: none of the others may stand there, with its gold."""

from __future__ import annotations

import re
from collections.abc import Iterable

from storage.errors import UserError
from tasks.domain.scaffolds import Scaffold

#: Characters of a problem that is looked for in all of a prompt: shorter ones, such as 1+1, stand in many by chance.
LOOKED_FOR = 12


def refuse_shown(scaffold: Scaffold, problems: Iterable[str]) -> None:
    """Errors: UserError for a problem that the scaffold's own prompt shows, as an example or anywhere in its words.
    Spaces and capitals aside: what only resembles one is no gold."""
    prompt, examples = _plain(scaffold.prompt("")), {_plain(example.problem) for example in scaffold.examples}
    for problem in dict.fromkeys(problems):
        plain = _plain(problem)
        if plain in examples or _stands_in(plain, prompt):
            where = "example" if plain in examples else "text"
            raise UserError(
                f"scaffold {scaffold.name}: its {where} shows {problem[:60]!r}, which is a problem that it is asked, so"
                " that the prompt would hold the gold; show another, or leave the problem out of the pool"
            )


def _plain(text: str) -> str:
    """
    >>> _plain(" What is\\n1 + 1? ")
    'what is 1 + 1?'
    """
    return " ".join(text.split()).casefold()


def _stands_in(problem: str, text: str) -> bool:
    """
    >>> [_stands_in("what is 1 + 1", text) for text in ("so: what is 1 + 1?", "so: what is 1 + 12?")]
    [True, False]
    """
    whole = rf"(?<![a-z0-9]){re.escape(problem)}(?![a-z0-9])"
    return len(problem) >= LOOKED_FOR and problem in text and re.search(whole, text) is not None
