"""Warn of habits that make a sentence hard to read, in the lines that were added since a commit (default: HEAD~1).

    python .ci/prose.py [COMMIT]

It prints `file:line: what was found: what to write`, and never fails, because in some sentences these words are right.
"""

from __future__ import annotations

import re
import subprocess
import sys

PROSE = (".md", ".py", ".toml", ".sql")
LONGEST = 40
HABITS = {
    r"\bwall\b(?! time|-clock)": "budget limit",
    r"\bparks\b": "pauses, and can be resumed",
    r"\bbeats\b": "heartbeat",
    r"\blet go\b": "delete",
    r"\bsealed\b": "protected by a checksum",
    r"\bstands on\b": "base model",
    r"\bgone on with\b": "resumed",
    r"\bby itself\b": "automatic",
    r"\bin its place\b": "say where",
    r"\bnobody\b|\bwhoever\b|\bsomebody\b": "name who",
    r'"""(What|It|They|That|Those)\b': "begin with a verb or with the thing's name",
    r"\b(of|to|by|for|with) (what|which|whom) \w+ (is|are|was|were|has|have)\b": "two sentences",
}


def added(commit: str) -> list[tuple[str, int, str]]:
    """Return (file, line number, text) of the lines that were added since the commit."""
    words = ["git", "diff", "-U0", commit, "--", *(f"*{suffix}" for suffix in PROSE), ":!tests", ":!docs/results"]
    found, name, number = list[tuple[str, int, str]](), "", 0
    for line in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ "):
            name = line[6:]
        elif at := re.match(r"@@ .*\+(\d+)", line):
            number = int(at[1])
        elif line.startswith("+"):
            found.append((name, number, line[1:]))
            number += 1
    return found


def is_prose(name: str, text: str) -> bool:
    """Return whether a line is text for people: all of a page, and words in code that look like a sentence."""
    return name.endswith(".md") or bool(re.search(r'#|"""|[a-z]+ [a-z]+ [a-z]+ [a-z]+', text))


for name, number, text in added(*sys.argv[1:] or ["HEAD~1"]):
    if is_prose(name, text):
        for pattern, better in HABITS.items():
            if match := re.search(pattern, text):
                print(f"{name}:{number}: {match[0].strip()!r}: {better}")
        longest = max((len(sentence.split()) for sentence in re.split(r"[.;:|]\s", text)), default=0)
        if longest > LONGEST:
            print(f"{name}:{number}: a sentence of {longest} words: at most {LONGEST}")
