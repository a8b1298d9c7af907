"""What a prompt shows beside the problem that it asks: none of the others may stand there, with its gold."""

from __future__ import annotations

import re
from collections.abc import Iterable

from storage.errors import UserError
from tasks.domain.scaffolds import Scaffold

#: Characters of a problem that is looked for in all of a prompt: shorter ones, such as 1+1, stand in many by chance.
LOOKED_FOR = 12
#: What sets mathematics apart in LaTeX, and characters without a width.
UNSEEN = re.compile(r"\$|\\[()\[\]]|[\u00ad\u200b-\u200d\u2060\ufeff]")


def refuse_shown(scaffold: Scaffold, problems: Iterable[str]) -> None:
    """Errors: UserError for a problem that the scaffold's own prompt shows, as an example or anywhere in its words.
    Spaces, capitals and the like aside: what only resembles one is no gold."""
    prompt, examples = _plain(scaffold.prompt("")), {_unended(_plain(e.problem)) for e in scaffold.examples}
    for problem in dict.fromkeys(problems):
        plain = _plain(problem)
        example = _unended(plain) in examples
        if example or _stands_in(plain, prompt):
            where = "example" if example else "text"
            raise UserError(
                f"scaffold {scaffold.name}: its {where} shows {problem[:60]!r}, which is a problem that it is asked, so"
                " that the prompt would hold the gold; show another, or leave the problem out of the pool"
            )


def _plain(text: str) -> str:
    """Without capitals, signs that set mathematics apart in LaTeX, and what nobody sees; spaces are one.

    >>> _plain(" What is\\n$1\u200b + 1$? ")
    'what is 1 + 1?'
    """
    return " ".join(UNSEEN.sub("", text).split()).casefold()


def _unended(plain: str) -> str:
    """Without the sign that ends it, which is none where it is `5!`."""
    return plain.rstrip(" .?:")


def _stands_in(problem: str, text: str) -> bool:
    """
    >>> [_stands_in("what is 1 + 1", text) for text in ("so: what is 1 + 1?", "so: what is 1 + 12?")]
    [True, False]
    >>> [_stands_in("what is 1 + 1?", text) for text in ("so: what is 1 + 1: 2", "so: what is 1 + 1 + 1?")]
    [True, False]
    """
    bare = _unended(problem)
    ends = "(?![a-z0-9])" if bare == problem else r"\s*(?:[.?:](?![0-9])|$)"
    whole = rf"(?<![a-z0-9]){re.escape(bare)}{ends}"
    return len(problem) >= LOOKED_FOR and bare in text and re.search(whole, text) is not None
