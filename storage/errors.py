"""Errors with a message for the user."""

import difflib
import errno
import os
import traceback
from collections.abc import Collection, Iterable

#: What the user can do about each error of the file system.
FIXES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
    **dict.fromkeys((errno.EROFS, errno.EACCES), "let this user read and write there"),
    **dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.ELOOP), "move away the file or folder that has this path"),
    errno.ENAMETOOLONG: "name it shorter",
    errno.EXDEV: "keep all folders of a root on one disk",
    errno.EIO: "check that disk",
    errno.ESTALE: "check that share",
}
#: Messages of libraries that report a full disk without an errno.
FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "database or disk is full")


class UserError(Exception):
    """A mistake of the user, or in their input. The command line prints the message and exits with `exit_code`."""

    exit_code = 2


class NotHere(UserError):
    """An input that is not on this machine. A plan needs only the name of the input. what: the input."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


class Parked(UserError):
    """A stop that the same command resumes: a budget limit, a quota, or an engine that is gone."""

    exit_code = 75


class ArmsFailed(UserError):
    """Some arms of a study failed, and the other arms were finished."""


class Unreachable(Parked):
    """Object storage did not answer within the time that the command waits."""


class Notice(UserWarning):
    """A message to the user that does not stop the command. Commands print it to standard error."""


def printable(text: str, kept: str = "") -> str:
    r"""Replace control characters, which could change a terminal's title or clipboard. kept: characters that stay.

    >>> printable("title\x1b]0;\n", kept="\n") == "title\ufffd]0;\n"
    True
    """
    return "".join(c if c.isprintable() or c in kept else "\ufffd" for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known name, or an empty text.

    >>> did_you_mean("dmeo", ["demo", "paper"]), did_you_mean("xyz", ["demo"])
    ("; did you mean 'demo'?", '')
    """
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def check_known(what: str, name: str, known: Collection[str]) -> None:
    """Raise UserError with the known names if `name` is not among them. what: the kind of name, for the message."""
    if name not in known:
        raise UserError(f"unknown {what} '{name[:60]}'{did_you_mean(name, known)} (known: {', '.join(known)})")


def disk_fault(error: BaseException) -> str | None:
    """Return a message for an error of a full, read-only, forbidden or failing disk, from any library; else None.

    >>> disk_fault(RuntimeError("I/O error: No space left on device (os error 28)"))
    'No space left on device; what was made before is kept: make room and run the same command again'
    >>> disk_fault(OSError(errno.EXDEV, "Invalid cross-device link", "/data/.scratch/x")).partition("kept: ")[2]
    'keep all folders of a root on one disk and run the same command again'
    >>> disk_fault(ValueError("x")) is None
    True
    """
    link: BaseException | None = error
    while link is not None:
        words, fix = next((words for words in FULL if words in str(link)), None), FIXES[errno.ENOSPC]
        if isinstance(link, OSError) and link.errno in FIXES:
            words = f"{os.path.abspath(str(link.filename))}: {link.strerror}" if link.filename else str(link.strerror)
            fix = FIXES[link.errno]
        if words:
            return f"{words}; what was made before is kept: {fix} and run the same command again"
        link = link.__cause__ or link.__context__
    return None


def as_user_error(error: Exception) -> UserError:
    """Return the error as a UserError, which can be sent to another process. Print an unexpected error's traceback."""
    if isinstance(error, UserError):
        return error
    if (text := disk_fault(error)) is None:
        traceback.print_exception(error)
        text = f"{type(error).__name__}: {error}"
    return UserError(text)
