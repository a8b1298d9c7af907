"""The one exception whose message is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable

#: What the system says of a place that takes no more: full, over quota, read-only, not ours. People solve it.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES})
#: What it says of a place that is not what it must be, and what people do about it.
MISPLACED = dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.ELOOP), "move away what lies in its place") | {
    errno.ENAMETOOLONG: "name it shorter",
    errno.EXDEV: "keep all folders of a root on one disk",
    errno.EIO: "see to that disk",
    errno.ESTALE: "see to that share",
}
#: A full disk in the words of libraries that keep the number to themselves.
FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "database or disk is full")


class UserError(Exception):
    """A mistake of the user or of their input: one clear sentence that names the place and the way out.

    The command line prints the sentence, without a traceback, and exits with `exit_code`.
    """

    exit_code = 2


class NotHere(UserError):
    """An input that is named and does not lie on this machine: a plan does without its content. what: the input."""

    def __init__(self, what: str, said: str) -> None:
        super().__init__(said)
        self.what = what


class Parked(UserError):
    """A wall put up by money, a quota or an engine that went away, not a mistake. What is done is durable; raising
    the limit and giving the same command again goes on."""

    exit_code = 75


class ArmsFailed(UserError):
    """Some arms of a study failed, after the others were finished."""


class Unreachable(Parked):
    """Object storage did not answer for as long as the command waits."""


class Notice(UserWarning):
    """What a person should know though nothing stops for it. The command line prints the sentence."""


def printable(text: str, kept: str = "") -> str:
    r"""Return a text without characters that a terminal obeys: they set its title and write the clipboard. kept:
    control characters that stay.

    >>> printable("title\x1b]0;\n", kept="\n") == "title\ufffd]0;\n"
    True
    """
    return "".join(c if c.isprintable() or c in kept else "\ufffd" for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """
    >>> did_you_mean("dmeo", ["demo", "paper"]), did_you_mean("xyz", ["demo"])
    ("; did you mean 'demo'?", '')
    """
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def way_out(number: int | None) -> str:
    """What a person does about one of NO_ROOM or MISPLACED.

    >>> way_out(errno.ENOSPC), way_out(errno.EACCES)
    ('make room', 'let this user read and write there')
    """
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "make room"
    return MISPLACED.get(number or 0, "let this user read and write there")


def disk_fault(error: BaseException) -> str | None:
    """One sentence for an error that a full, read-only, forbidden or failing disk is behind, or what lies in a place
    of it, whichever library met it; null for any other.

    >>> disk_fault(RuntimeError("I/O error: No space left on device (os error 28)"))
    'No space left on device; what was made before is kept: make room and run the same command again'
    >>> disk_fault(OSError(errno.EROFS, "Read-only file system", "/data/x")).partition(";")[0]
    '/data/x: Read-only file system'
    >>> disk_fault(OSError(errno.EXDEV, "Invalid cross-device link", "/data/.scratch/x")).partition("kept: ")[2]
    'keep all folders of a root on one disk and run the same command again'
    >>> disk_fault(ValueError("x")) is None
    True
    """
    link: BaseException | None = error
    while link is not None:
        words, way = next((words for words in FULL if words in str(link)), None), way_out(errno.ENOSPC)
        if isinstance(link, OSError) and (link.errno in NO_ROOM or link.errno in MISPLACED):
            words = f"{os.path.abspath(str(link.filename))}: {link.strerror}" if link.filename else str(link.strerror)
            way = way_out(link.errno)
        if words:
            return f"{words}; what was made before is kept: {way} and run the same command again"
        link = link.__cause__ or link.__context__
    return None
