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
#: Signs that end a sentence, in any script, and no number; not what may be a factorial.
SIGNS = "?;…。．？！：；؟۔।"
ENDS = f" .:{SIGNS}"
#: What a problem in an expression goes on with: an operator with as much space on either side, and an operand.
OPERATOR = r"(?:[-+*/^×·÷−]|\\(?:times|cdot|div)\b ?)"
OPERAND = r"(?=[0-9({\\]|[a-z](?![a-z]))"
RECKONED = re.compile(rf" {OPERATOR} {OPERAND}|{OPERATOR}{OPERAND}|%|_[0-9{{]|\(| \([0-9](?![0-9.,/]*\))")
#: What an expression is led to by, and the first digits of its first number; but no label of an example.
LED_TO = re.compile(rf"(?:[0-9)}}\]]|(?<![^\W_])[a-z])(?: {OPERATOR} ?|{OPERATOR})$|[0-9][.,]$")
LABEL = re.compile(
    r"(?<![^\W_])(?:(?:example|exercise|problem|question|task|case|q) ?\(?\w{1,3}\)?|\([0-9a-z]\)) ?\W ?$"
)
#: An expression: it begins, or ends, with a number, a bracket or the name of a variable.
BEGUN = re.compile(rf"[(\\√]|(?:[0-9][0-9.,]*|[a-z]) ?(?:{OPERATOR}|[=_(])")
ENDED = re.compile(r"(?:[0-9)]|(?<!\[/asy)\]|(?<![^\W\d_])[a-z]|\}(?<!\\end\{array\})(?<!\\end\{equation\*\}))$")
#: Behind a problem whose own sign is left out: the end of its sentence, and not more words of it.
LEFT_OUT = re.compile(
    rf" ?(?:$|[{LINE}{SIGNS}!\"'”’»)\]*_`=→⇒≈|&#]|<[a-z/]|[-=]>|[.:](?![0-9])|[-–—](?!\w)|, ?(?:<|is\b|answer)|\\boxed"
    r"|\((?:answer|[-0-9])|(?<= )(?:(?:is|equals|gives) [-<0-9]"
    r"|(?:the |final )?(?:a|answer|ans|solution|result|output|response|reasoning|assistant)\b))"
)


def refuse_shown(scaffold: Scaffold, problems: Iterable[str]) -> None:
    """Errors: UserError for a problem that the scaffold's own prompt shows, as an example or anywhere in its words.
    Spaces, capitals and the like aside: what only resembles one is no gold."""
    prompt, examples = _lines(scaffold.prompt("")), {_unended(_plain(e.problem)) for e in scaffold.examples}
    words = prompt.replace(LINE, " ")
    for problem in dict.fromkeys(problems):
        bare = _unended(plain := _plain(problem))
        example = bare in examples
        if example or (bare and len(plain) >= LOOKED_FOR and bare in words and stands_in(bare, prompt)):
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
    return any(
        not _led_to(bare, prompt[max(0, found.start() - 24) : found.start()])
        and not _goes_on(bare, prompt[found.end() : found.end() + 40])
        for found in re.finditer(rf"(?<![^\W_]){words}", prompt)
    )


def _led_to(bare: str, before: str) -> bool:
    return bool(BEGUN.match(bare) and LED_TO.search(before) and not LABEL.search(before))


def _goes_on(bare: str, after: str) -> bool:
    if bare.endswith("="):
        return False
    reckoned = ENDED.search(bare) and (RECKONED.match(after) or after.startswith("!"))
    if reckoned or re.match(r"[^\W_]|[.,][0-9]", after):
        return True
    # where its last sign is not left out, it ends by that
    return bare[-1:].isalnum() and LEFT_OUT.match(after) is None
