"""The process in which symbolic grading happens: `serve()` is its whole life.

A keeper imports the algebra once and forks a grader that inherits its pipes. The grader answers one line per
item; before each it arms a timer whose default action is death by the kernel, so that no loop in C, no
swallowed exception and no library can outlive it. When a grader dies the keeper says why, in its place, and
forks the next one in milliseconds. End of input ends both.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys

NORMAL, SPENT = 0, 7
#: Processor time is what decides on a busy machine, so that a verdict does not depend on who else computes.
CPU_SHARE = 0.65
#: Says that an item ran out of time on the clock and not of processor time: no verdict, ask again with more patience.
STARVED = "starved"


def serve(limit_seconds: float, limit_bytes: int) -> None:
    """Answer items from standard input until it ends: each line `[region, gold, form, finish, kind, patience]`."""
    os.environ.setdefault("SYMPY_GROUND_TYPES", "python")
    out = io.FileIO(os.dup(1), "w")
    os.dup2(2, 1)
    from tasks.domain.grading import grading, terms

    terms.warm()
    _say(out, {"ready": grading.GRADER_VERSION})
    while True:
        child = os.fork()
        if child == 0:
            _grade_lines(out, limit_seconds, limit_bytes)
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == NORMAL:
            return
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == SPENT:
            continue
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            # the processor's limit would have struck first, had there been a processor
            _say(out, [STARVED, "the machine gave it too little processor time", None, None])
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            _say(out, ["timeout", f"took longer than {CPU_SHARE * limit_seconds:.1f} s", None, None])
        else:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            _say(out, ["ungradable", f"the grading process died ({how})", None, None])


def _grade_lines(out: io.FileIO, limit_seconds: float, limit_bytes: int) -> None:
    from tasks.domain.grading.grading import grade_region
    from tasks.domain.grading.kinds import is_brought, kind_of

    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in iter(_read_line, b""):
        region, gold, form, finish, kind, patience = json.loads(line)
        if is_brought(kind):
            kind_of(kind)  # imported before its time is counted
        signal.setitimer(signal.ITIMER_REAL, patience * limit_seconds)
        signal.setitimer(signal.ITIMER_PROF, CPU_SHARE * limit_seconds)
        try:
            v = grade_region(region, gold, form, finish, kind)
            reply, spent = [v.verdict, v.reason, v.answer, v.canonical], False
        except MemoryError:
            reply, spent = ["ungradable", f"needs more than {limit_bytes >> 20} MiB", None, None], True
        except RecursionError:
            reply, spent = ["ungradable", "nested too deeply", None, None], False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(out, reply)
        if spent:
            os._exit(SPENT)
    os._exit(NORMAL)


def _read_line() -> bytes:
    """One line of standard input without reading ahead: the next grader inherits the pipe, not a buffer."""
    size = b""
    while not size.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        size += byte
    left, parts = int(size), []
    while left:
        chunk = os.read(0, left)
        if not chunk:
            return b""
        parts.append(chunk)
        left -= len(chunk)
    return b"".join(parts)


def _say(out: io.FileIO, message: object) -> None:
    out.write(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(float(sys.argv[2])))
