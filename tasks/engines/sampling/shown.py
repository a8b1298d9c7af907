"""What a prompt shows beside the problem that it asks: none of the others may stand there, with its gold."""

from __future__ import annotations

import re
from collections.abc import Iterable

from storage.errors import UserError
from tasks.domain.scaffolds import Scaffold

#: Characters of a problem that is looked for in all of a prompt: shorter ones, such as 1+1, stand in many by chance.
LOOKED_FOR = 12
#: What sets mathematics apart in LaTeX, and characters without a width.
UNSEEN = re.compile(r"\\?\$|\\[()\[\]]|[\u00ad\u200b-\u200d\u2060\ufeff]")
#: Between a prompt's lines, which end sentences: a space to what looks for words.
LINE = "\N{LINE SEPARATOR}"
#: An expression that began before.
LED_TO = re.compile(r"[a-z0-9)}\]] ?[-+*/^×·÷] ?$")


def refuse_shown(scaffold: Scaffold, problems: Iterable[str]) -> None:
    """Errors: UserError for a problem that the scaffold's own prompt shows, as an example or anywhere in its words.
    Spaces, capitals and the like aside: what only resembles one is no gold."""
    prompt, examples = _lines(scaffold.prompt("")), {_unended(_plain(e.problem)) for e in scaffold.examples}
    words = prompt.replace(LINE, " ")
    for problem in dict.fromkeys(problems):
        bare = _unended(plain := _plain(problem))
        example = bare in examples
        if example or (len(plain) >= LOOKED_FOR and bare in words and stands_in(bare, prompt)):
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


def _lines(text: str) -> str:
    return LINE.join(filter(None, map(_plain, text.splitlines())))


def stands_in(bare: str, prompt: str) -> bool:
    """Whole, and as no part of a longer one, whose sentence goes on in words or whose expression does. bare: a problem
    without the sign that ends it. prompt: its lines.

    >>> ends = "?", ": 2", f"{LINE}a: 2", '", 2', " <answer>2", " = 2", "."
    >>> all(stands_in("what is 1 + 1", f"so: what is 1 + 1{end}") for end in ends)
    True
    >>> any(stands_in("what is 1 + 1", f"what is 1 + 1{end}") for end in ("2?", ".5?", ",000?", " + 1?", " apple?"))
    False
    >>> stands_in("5 + 12 =", "5 + 12 = 17"), stands_in("5 + 12 =", "2 * 5 + 12 ="), stands_in("5 + 12 =", "- 5 + 12 =")
    (True, False, True)
    """
    words = r"\s".join(map(re.escape, bare.split()))
    return any(
        not LED_TO.search(prompt[: found.start()]) and (bare.endswith("=") or not _goes_on(bare, prompt[found.end() :]))
        for found in re.finditer(rf"(?<![a-z0-9]){words}", prompt)
    )


def _goes_on(bare: str, after: str) -> bool:
    reckoned = re.search(r"(?:[0-9)}\]]|(?<![a-z])[a-z])$", bare) and re.match(r" ?[-+*/^×·÷]", after)
    return bool(reckoned or re.match(r"[a-z0-9]| [a-z0-9]|[.,][0-9]", after))
