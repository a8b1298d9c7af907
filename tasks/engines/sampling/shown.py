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
#: Signs that end a problem, in any script; not what may be a factorial.
ENDS = " .?:;…。．？！：；؟۔।"
#: What a problem in an expression goes on with: an operator with as much space on either side, and an operand.
OPERATOR = r"(?:[-+*/^×·÷−]|\\(?:times|cdot|div)\b ?)"
OPERAND = r"(?=[0-9({\\]|[a-z](?![a-z]))"
RECKONED = re.compile(rf" {OPERATOR} {OPERAND}|{OPERATOR}{OPERAND}|%|\(| \([0-9]")
#: What an expression is led to by, and the first digits of its first number.
LED_TO = re.compile(rf"[a-z0-9)}}\]](?: {OPERATOR} ?|{OPERATOR})$|[0-9][.,]$")
#: An expression: it begins, or ends, with a number, a bracket or the name of a variable.
BEGUN = re.compile(r"[0-9(\\{√]|[a-z](?!\w)")
ENDED = re.compile(r"(?:[0-9)}\]]|(?<![^\W\d_])[a-z])$")
#: Behind a problem whose own sign is left out: the end of its sentence, and not more words of it.
LEFT_OUT = re.compile(
    rf" ?(?:$|[{LINE}?!;…。．？！：；؟۔।\"'”’»)\]*_`<=→>]|[-=]>|[.:](?![0-9])|[-–—](?!\w)|, ?(?:<|is\b|answer)"
    r"|(?<= )(?:(?:a|answer|ans|solution)\b|(?:is|equals|gives) [-<0-9]))"
)


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
    return plain.rstrip(ENDS)


def _lines(text: str) -> str:
    return LINE.join(filter(None, map(_plain, text.splitlines())))


def stands_in(bare: str, prompt: str) -> bool:
    """Whole, and as no part of a longer one, whose sentence goes on in words or whose expression does. bare: a problem
    without the sign that ends it. prompt: its lines.

    >>> ends = "?", ": 2", f"{LINE}a: 2", '", 2', " <answer>2", " = 2", ".", " -> 2", "** 2", " answer: 2", ", is 2"
    >>> all(stands_in("what is 1 + 1", f"1 - what is 1 + 1{end}") for end in ends)
    True
    >>> more = "2?", ".5?", ",000?", " + 1?", " apple?", r" \times 3?", "% of 3?", "!", " (3 + 1)", ", then doubled?"
    >>> [end for end in more if stands_in("what is 1 + 1", f"what is 1 + 1{end}")]
    []
    >>> stands_in("5 + 12 =", "5 + 12 = 17"), stands_in("5 + 12 =", "2 * 5 + 12 ="), stands_in("5 + 12 =", "- 5 + 12 =")
    (True, False, True)
    """
    words = r"\s".join(map(re.escape, bare.split()))
    begun = BEGUN.match(bare)
    return any(
        not (begun and LED_TO.search(prompt[max(0, found.start() - 12) : found.start()]))
        and not _goes_on(bare, prompt[found.end() : found.end() + 40])
        for found in re.finditer(rf"(?<!\w){words}", prompt)
    )


def _goes_on(bare: str, after: str) -> bool:
    if bare.endswith("="):
        return False
    if re.match(r"\w|[.,][0-9]", after) or (ENDED.search(bare) and (RECKONED.match(after) or after.startswith("!"))):
        return True
    # where its last sign is not left out, it ends by that
    return bare[-1:].isalnum() and LEFT_OUT.match(after) is None
