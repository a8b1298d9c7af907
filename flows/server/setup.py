"""A Prefect server set up for this project: pools with queues, deployments, and the automations that notice lost
machines. Everything is found by name, and what is as it should be is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from flows.server import automations, deployments
from flows.server.deployments import DEPLOYMENTS, Deployment
from flows.server.installed import check_prefect
from storage.errors import UserError
from tasks.domain.budget import Budget
from tasks.engines.environment import quiet_libraries

#: pool → queues with their priority; a lower number is served first.
POOLS = {"cpu": {"default": 1}, "gpu": {"experiments": 1, "nightly": 10}}


@contextmanager
def _server() -> Iterator[Any]:
    """The server at PREFECT_API_URL. Errors: UserError if there is none, or it refuses."""
    if not os.environ.get("PREFECT_API_URL"):
        raise UserError(
            "deploy: no server; start one with `varband server start` and set PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
    check_prefect("deploy")
    quiet_libraries()
    from httpx import HTTPStatusError, TransportError
    from prefect.client.orchestration import get_client

    try:
        with get_client(sync_client=True) as client:
            yield client
    except TransportError as error:
        raise UserError(f"deploy: {os.environ['PREFECT_API_URL']} does not answer ({error})") from None
    except HTTPStatusError as error:
        if error.response.status_code == 401:
            raise UserError(
                f"deploy: {os.environ['PREFECT_API_URL']} refused the password: set PREFECT_API_AUTH_STRING to the"
                " server's (docs/security.md)"
            ) from None
        raise UserError(f"deploy: the server refused: {error.response.text[:500]}") from None


def register(own: Sequence[Deployment] = ()) -> Iterator[str]:
    """Set up the server, saying what was done. What people decided on it stays. own: deployments of one study."""
    with _server() as client:
        for pool, queues in POOLS.items():
            yield from _pool(client, pool, queues)
        for deployment in (*DEPLOYMENTS, *own):
            yield deployments.deploy(client, deployment)
        yield from automations.register(client)


def _pool(client: Any, name: str, queues: dict[str, int]) -> Iterator[str]:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    try:
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        yield f"pool {name}: made"
    except ObjectAlreadyExists:
        yield f"pool {name}: there"
    known = {queue["name"] for queue in client.request("POST", f"/work_pools/{name}/queues/filter", json={}).json()}
    for queue, priority in queues.items():
        body = {"name": queue, "priority": priority}
        if queue not in known:
            client.request("POST", f"/work_pools/{name}/queues", json=body)


def resume_suspended(flow_run: str, limits: dict[str, float], budget: str | None, *, anyway: bool = False) -> bool:
    """Tell a suspended run to go on, with what the new budget adds to its limits. False if it is not suspended."""
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    try:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(flow_run))
            if run.state is None or not run.state.is_paused():
                return False
            wanted = Budget.parse(budget).limits()
            more = {name: max(0.0, value - limits.get(name, value)) for name, value in wanted.items()}
            said = {"tokens": 0, "gpu_hours": 0, "usd": 0, **more, "anyway": anyway}
            answer = client.resume_flow_run(run.id, run_input=said)
    except (HTTPError, ObjectNotFound, ValueError) as error:
        raise UserError(f"resume: the server does not know it ({error}); unset PREFECT_API_URL to go on") from None
    if answer.status.value != "ACCEPT":
        raise UserError(f"resume: the server refused: {getattr(answer.details, 'reason', answer.status.value)}")
    return True
