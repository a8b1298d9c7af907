"""The deployments of this project as data, and the setup of a Prefect server with deployments, pools and automations.

Fields that the code defines (entrypoint, form, description, version) are updated whenever they differ. Fields that
people edit in the UI (paused, parameters, schedules, queue, limits, job variables, tags) are set only once.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from flows.running.on_prefect import TRIES
from flows.server.start import check_prefect
from storage.artifacts.manifest import code_here
from storage.errors import UserError
from tasks.domain.budget import Budget
from tasks.engines.hardware import quiet_libraries

#: Module of the flows. It is imported late, because it imports Prefect.
FLOWS = "flows.server.deployed"
#: Prefect's interval between heartbeats is 180 s, but an automation marks a run as lost 90 s after the last one.
BEATING = {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}}
Json = dict[str, Any]
#: Base job templates of pools whose workers start containers, by the worker's type.
TEMPLATES = Path(__file__).resolve().parents[2] / "deploy" / "pools"
#: Pool → queues with their priority. The queue with the lowest number comes first.
POOLS = {"cpu": {"default": 1}, "gpu": {"experiments": 1, "nightly": 10}}


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of the Prefect server. flow: its name in `flows.server.deployed`, by default also the deployment's
    name. cron: in UTC; a scheduled run waits until the one before has ended. parameters: initial values of the form;
    for a deployment of one study, that study."""

    flow: str
    description: str
    named: str = ""
    parameters: Json = field(default_factory=dict)
    pool: str = "cpu"
    queue: str = "default"
    tags: tuple[str, ...] = ()
    cron: str | None = None

    @property
    def name(self) -> str:
        return self.named or self.flow

    def of_code(self) -> Json:
        """Return the fields that the code defines. Workers import the flow from their own environment."""
        from prefect.utilities.callables import parameter_schema

        form = parameter_schema(getattr(import_module(FLOWS), self.flow)).model_dump(mode="json")
        return {
            "entrypoint": f"{FLOWS}.{self.flow}",
            "pull_steps": [{"varband.enter": {}}],
            "path": None,
            "description": self.description,
            "version": code_here(),
            # a misspelt parameter is an error of the form, and not of the run that would start
            "parameter_openapi_schema": {**form, "additionalProperties": False},
        }

    def of_people(self) -> Json:
        """Return the fields that people may change. A second run waits, and is not dropped."""
        return {
            "paused": False,
            "parameters": self.parameters,
            "schedules": [_schedule(self.cron)] if self.cron else [],
            "work_pool_name": self.pool,
            "work_queue_name": self.queue,
            "concurrency_limit": 1 if self.cron else None,
            "concurrency_options": {"collision_strategy": "ENQUEUE"} if self.cron else None,
            "job_variables": dict(BEATING),
            "tags": ["varband", *self.tags],
            "enforce_parameter_schema": True,
        }


def _nightly(description: str, cron: str, name: str = "", parameters: Json | None = None) -> Deployment:
    """Return a deployment of nightly runs. Runs in its queue wait until no experiment needs the GPUs."""
    named, tags = (f"{name}-nightly", ("nightly", name)) if name else ("", ("nightly",))
    text = f"{description} Samples all problems if the machine changed, else a few."
    return Deployment("reeval", text, named, parameters or {}, "gpu", "nightly", tags, cron)


PIECE = "Internal: one artifact of a study, or a shard of its rollouts, on a GPU worker. Runs with `gpu_pool` start it."
DEPLOYMENTS = (
    Deployment("experiment", "Run a study, from its pool of problems to the report. Stored artifacts are reused."),
    Deployment("plan", "Show what a study would make, reuse, cost and detect, as an artifact. Makes nothing."),
    # its name puts it at the end of Prefect's list
    Deployment("make", PIECE, "zz_make", pool="gpu", queue="experiments", tags=("gpu", "internal")),
    _nightly("Re-evaluate stored adapters on the held-out problems, every night.", "0 2 * * *"),
    Deployment("regrade", "Grade stored rollouts with the installed grader. Samples nothing, overwrites nothing."),
    Deployment("gc", "Remove unreferenced artifacts. The ledger stays."),
)


def of_study(title: str, study: Json) -> tuple[Deployment, ...]:
    """Return the deployments of one study: its experiment, and the nightly re-evaluation of its adapters. Raise
    UserError for a study with the name of a built-in deployment. study: its completed form."""
    name = title.replace("/", "-")
    if name in {one.name for one in DEPLOYMENTS}:
        raise UserError(f"deploy: '{name}' is a built-in deployment; give the file another name")
    whole = f"Run the study {title}, from its pool of problems to the report. Stored artifacts are reused."
    every = f"Re-evaluate the adapters of the study {title} on its held-out problems, every night."
    return (
        Deployment("experiment", whole, name, {"study": study}, tags=(name,)),
        _nightly(every, "0 3 * * *", name, {"studies": [study]}),
    )


def _schedule(cron: str) -> Json:
    return {"schedule": {"cron": cron, "timezone": "UTC", "day_or": True}, "active": True}


@dataclass(frozen=True, slots=True)
class PoolTypes:
    """The worker type of each pool, by default `process`. A worker of another type has an image with its digest."""

    types: Mapping[str, str] = field(default_factory=dict)
    image: str = ""

    def __post_init__(self) -> None:
        if unknown := {*self.types} - {*POOLS}:
            raise UserError(f"deploy: --pool {min(unknown)}: this pool is unknown (known: {', '.join(POOLS)})")
        if {*self.types.values()} - {"process"} and "@sha256:" not in self.image:
            raise UserError("deploy: a pool whose workers run in containers needs an image; give --image NAME@sha256:…")

    def of(self, pool: str) -> str:
        return self.types.get(pool, "process")

    def job_variables(self, pool: str) -> Json:
        """Return the job variables that the code sets: the container's image, also as an environment variable."""
        if self.of(pool) == "process":
            return {}
        return {"image": self.image, "env": BEATING["env"] | {"VARBAND_IMAGE": self.image}}


def deploy(client: Any, wanted: Deployment, pools: PoolTypes = PoolTypes()) -> str:
    """Update a deployment of the server and its code; return a message."""
    query = {"deployments": {"name": {"any_": [wanted.name]}}, "flows": {"name": {"any_": [wanted.flow]}}}
    found, code = client.request("POST", "/deployments/filter", json=query).json(), wanted.of_code()
    known = found[0] if found else None
    if known is None:
        flow = client.request("POST", "/flows/", json={"name": wanted.flow}).json()
        body = {"name": wanted.name, "flow_id": flow["id"], **wanted.of_people(), **code}
        body["job_variables"] |= pools.job_variables(wanted.pool)
        client.request("POST", "/deployments/", json=body)
        return f"deployment {wanted.name}: made"
    if image := pools.job_variables(known["work_pool_name"]):
        env = known["job_variables"].get("env", {}) | image["env"]
        code["job_variables"] = known["job_variables"] | image | {"env": env}
    if wanted.parameters:  # the deployment's study, as it is in its file now
        code["parameters"] = merged_parameters(known["parameters"], wanted.parameters)
    strange = _strange(code.get("parameters", known["parameters"]), code["parameter_openapi_schema"])
    if strange:  # parameters that do not fit the form would make the server reject the whole update
        del code["parameter_openapi_schema"]
    # an update deletes scheduled runs, perhaps tonight's, so it is skipped if nothing differs
    if changed := {name: value for name, value in code.items() if known[name] != value}:
        client.request("PATCH", f"/deployments/{known['id']}", json=changed)
    return f"deployment {wanted.name}: {'renewed' if changed else 'there'}{strange}"


def _strange(parameters: Json, form: Json) -> str:
    """Return parameters that were entered into an earlier version of the form and that the current form rejects."""
    from prefect.utilities.schema_tools import validate
    from prefect.utilities.schema_tools.validation import ValidationError

    try:
        validate(parameters, form, raise_on_error=True, ignore_required=True)
    except ValidationError as error:
        return f", but its parameters do not fit the form any more ({error}): correct them in the UI and deploy again"
    return ""


def merged_parameters(theirs: Any, ours: Any) -> Any:
    """Return the parameters that people set, with ours merged in: fields by name, and the first entry of a list.

    >>> merged_parameters({"budget": {"usd": 5}, "study": {"file": "old", "seeds": [1]}}, {"study": {"file": "new"}})
    {'budget': {'usd': 5}, 'study': {'file': 'new', 'seeds': [1]}}
    >>> merged_parameters({"studies": [{"file": "old"}, {"profile": "demo"}]}, {"studies": [{"file": "new"}]})
    {'studies': [{'file': 'new'}, {'profile': 'demo'}]}
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs | {name: merged_parameters(theirs.get(name), value) for name, value in ours.items()}
    if isinstance(theirs, list) and isinstance(ours, list) and theirs:
        return [merged_parameters(theirs[0], ours[0]), *theirs[1:]]
    return ours


@contextmanager
def _server() -> Iterator[Any]:
    """Yield the server at PREFECT_API_URL. Raise UserError if the server does not answer or rejects the request."""
    if not os.environ.get("PREFECT_API_URL"):
        raise UserError(
            "deploy: no server is set; start one (`varband server start`), and set"
            " PREFECT_API_URL=http://127.0.0.1:4200/api"
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
                " server's password (docs/operations.md)"
            ) from None
        raise UserError(f"deploy: the server refused: {error.response.text[:500]}") from None


def register(own: Sequence[Deployment] = (), pools: PoolTypes = PoolTypes()) -> Iterator[str]:
    """Set up the server, and yield messages. Settings that a user changed in the UI stay. Raise UserError for a pool
    that exists with another type. own: deployments of one study."""
    with _server() as client:
        for pool, queues in POOLS.items():
            yield from _pool(client, pool, pools.of(pool), queues)
        for deployment in (*DEPLOYMENTS, *own):
            yield deploy(client, deployment, pools)
        yield from _automations(client)


def _pool(client: Any, name: str, of_type: str, queues: dict[str, int]) -> Iterator[str]:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    path = TEMPLATES / f"{of_type}.json"
    template = orjson.loads(path.read_bytes()) if path.exists() else {}
    try:
        client.create_work_pool(WorkPoolCreate(name=name, type=of_type, base_job_template=template))
        yield f"pool {name}: made"
    except ObjectAlreadyExists:
        found = client.read_work_pool(name).type
        if found != of_type:
            raise UserError(
                f"deploy: the pool {name} already has type {found}; give --pool {name}={found}, or delete the pool"
            ) from None
        yield f"pool {name}: there"
    known = {queue["name"] for queue in client.request("POST", f"/work_pools/{name}/queues/filter", json={}).json()}
    for queue, priority in queues.items():
        body = {"name": queue, "priority": priority}
        if queue not in known:
            client.request("POST", f"/work_pools/{name}/queues", json=body)


def resume_suspended(flow_run: str, limits: dict[str, float], budget: str | None, *, anyway: bool = False) -> bool:
    """Resume a run with the amounts that the new budget adds to its limits. Return False if the run is not paused."""
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    try:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(flow_run))
            if run.state is None or not run.state.is_paused():
                return False
            wanted = Budget.parse(budget).limits()
            more = {name: value - limits[name] for name, value in wanted.items() if value > limits.get(name, value)}
            answer = client.resume_flow_run(run.id, run_input={"more": more, "anyway": anyway})
    except (HTTPError, ObjectNotFound, ValueError) as error:
        raise UserError(
            f"resume: the server does not know this run ({error}); unset PREFECT_API_URL to resume it here"
        ) from None
    if answer.status.value != "ACCEPT":
        raise UserError(f"resume: the server refused: {getattr(answer.details, 'reason', answer.status.value)}")
    return True


# ---- automations of the Prefect server: notice lost machines, restart their runs, and notify people

#: A flow run sends a heartbeat every 30 s (`PREFECT_FLOWS_HEARTBEAT_FREQUENCY`). After three missing ones, its machine
#: counts as lost.
LOST_SECONDS = 90
#: States that send a notification. `Crashed` is not among them, because such a run is started again automatically.
NOTIFY = ("Failed", "Drifted", "Unchecked", "Parked")
FINAL = ("Completed", "Cancelled", "Crashed", "Suspended", "Paused", *NOTIFY)
#: A paused run gives its reason in an event, because its state cannot.
PARKED_EVENT = "varband.parked"
LOST_TOO_OFTEN = f"Its machine was lost {TRIES + 1} times. Start the run again in the UI."
Resource = dict[str, str | list[str]]
ANY_RUN: Resource = {"prefect.resource.id": "prefect.flow-run.*"}
#: Deployments that send notifications: all but that of pieces, for which the parent run notifies once.
WHOLE: Resource = {"prefect.resource.role": "deployment", "prefect.resource.name": "!zz_make"}
#: Name of the block, of any kind, that receives the notifications.
BLOCK = "varband"


def states(names: tuple[str, ...]) -> set[str]:
    """Return the events of runs that enter these states."""
    return {f"prefect.flow-run.{name}" for name in names}


def _trigger(match: Resource, related: Resource, expect: set[str], after: str = "", within: int = 0) -> Json:
    """Return a trigger per flow run. The trigger fires when one of the events `expect` arrives; with `after`, if none
    of them follows that event within `within` seconds."""
    return {
        "type": "event",
        "match": match,
        "match_related": related,
        "after": [after] if after else [],
        "expect": sorted(expect),
        "for_each": ["prefect.resource.id"],
        "posture": "Proactive" if after else "Reactive",
        "threshold": 1,
        "within": within,
    }


def _automation(name: str, description: str, trigger: Json, *actions: Json) -> Json:
    return {"name": f"varband: {name}", "description": description, "trigger": trigger, "actions": actions}


def _into(state: str, name: str, message: str) -> Json:
    return {"type": "change-flow-run-state", "state": state, "name": name, "message": message, "force": False}


def _automations(client: Any) -> Iterator[str]:
    ended, beat, pending = states(FINAL), "prefect.flow-run.heartbeat", "prefect.flow-run.Pending"
    # a run that was started this often, or that cannot start, is not started again
    started: Resource = {**ANY_RUN, "prefect.run-count": [str(n) for n in range(1, TRIES + 1)]}
    # only the run of a deployment can be started again
    deployed: Resource = {"prefect.resource.role": "deployment"}
    recovering = (
        _automation(
            "a lost machine's runs are crashed",
            f"no heartbeat for {LOST_SECONDS} s",
            _trigger(ANY_RUN, {}, {beat, *ended}, beat, LOST_SECONDS),
            _into("CRASHED", "Crashed", "its machine fell silent"),
        ),
        _automation(
            "a run stuck in Pending is crashed",
            "its worker died before it started; it would hold its slot for ever",
            _trigger(ANY_RUN, {}, {"prefect.flow-run.Running", *ended}, pending, 300),
            _into("CRASHED", "Crashed", "it never started"),
        ),
        _automation(
            "a crashed run starts again",
            "finished stages are reused; the flow itself gives up after a few attempts",
            _trigger(started, deployed, {"prefect.flow-run.Crashed"}),
            _into("SCHEDULED", "AwaitingRetry", "after a crash"),
        ),
    )
    for automation in (*recovering, *_notifications(client)):
        yield f"automation {automation['name'].partition(': ')[2]}: {_automate(client, automation)}"


def _notifications(client: Any) -> Iterator[Json]:
    """Yield the automations that notify people; none if there is no notification block."""
    wanted_block = {"block_documents": {"name": {"any_": [BLOCK]}}}
    found = client.request("POST", "/block_documents/filter", json=wanted_block).json()
    blocks = [block for block in found if "notify" in block["block_schema"]["capabilities"]]
    names = ", ".join(f"{block['block_type']['slug']}/{block['name']}" for block in blocks)
    subject = "{{ flow.name }} {{ flow_run.name }}: {{ flow_run.state.name }}"
    for name, match, events, text in (
        ("failed, drifted or checked nothing", ANY_RUN, states(NOTIFY), "{{ flow_run.state.message }}"),
        ("was lost too often", {**ANY_RUN, "prefect.run-count": str(TRIES + 1)}, states(("Crashed",)), LOST_TOO_OFTEN),
        ("waits for money", ANY_RUN, {PARKED_EVENT}, "{{ event.payload.why }}"),
    ):
        body = {"type": "send-notification", "subject": subject, "body": f"{text}\n\n{{{{ flow_run|ui_url }}}}"}
        steps = [body | {"block_document_id": block["id"]} for block in blocks]
        trigger = _trigger(match, WHOLE, events)
        if blocks:
            yield _automation(f"people are told of what {name}", f"to {names}", trigger, *steps)


def _automate(client: Any, automation: Json) -> str:
    """Create or update an automation. One without changes is not written, because it would forget the runs it
    watches."""
    from prefect.events.schemas.automations import AutomationCore

    wanted_block = {"automations": {"name": {"any_": [automation["name"]]}}}
    known = client.request("POST", "/automations/filter", json=wanted_block).json()
    body = AutomationCore.model_validate(automation).model_dump(mode="json", exclude={"owner_resource"})
    if not known:
        client.request("POST", "/automations/", json=body)
        return "made"
    body["enabled"] = known[0]["enabled"]
    if all(_content(known[0][name]) == _content(value) for name, value in body.items()):
        return "there"
    client.request("PUT", f"/automations/{known[0]['id']}", json=body)
    return "renewed"


def _content(value: Any) -> Any:
    """Return a field of an automation without ids and order, which the server changes."""
    if isinstance(value, dict):
        return {k: _content(v) for k, v in value.items() if k != "id"}
    return sorted(map(_content, value), key=str) if isinstance(value, list) else value
