"""The deployments of this project as data, and how a server comes to have them.

What code decides (entrypoint, form, description, version) is renewed whenever it differs. What people decide in the UI
(paused, parameters, schedules, queue, limits, job variables, tags) is suggested once and then theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from flows.server.filled import changed_text, filled
from storage.artifacts.provenance import code_here
from storage.errors import UserError

#: setup.py takes a run for lost after 90 s without a beat; Prefect's own default is a beat in 180 s.
BEATING = {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """flow: its name in the module of `flows.server`, and the deployment's where that has none. cron: in UTC.

    parameters: what its form is filled in with; a study of its own, for a deployment of one.
    """

    flow: str
    named: str = ""
    parameters: Json = field(default_factory=dict)
    module: str = "deployed"
    description: str
    pool: str = "cpu"
    queue: str = "default"
    tags: tuple[str, ...] = ()
    cron: str | None = None
    one_at_a_time: bool = False

    @property
    def name(self) -> str:
        return self.named or self.flow

    def of_code(self) -> Json:
        """Workers import the flow from their own environment, whatever machine deployed it."""
        from prefect.utilities.callables import parameter_schema

        module = f"flows.server.{self.module}"
        form = parameter_schema(getattr(import_module(module), self.flow)).model_dump(mode="json")
        return {
            "entrypoint": f"{module}.{self.flow}",
            "pull_steps": [{"varband.enter": {}}],
            "path": None,
            "description": self.description,
            "version": code_here(),
            # a misspelt parameter is refused with the form's other mistakes, not when the run starts
            "parameter_openapi_schema": {**form, "additionalProperties": False},
        }

    def of_people(self) -> Json:
        """What they find; a second run waits instead of being dropped."""
        return {
            "paused": False,
            "parameters": self.parameters,
            "schedules": [_schedule(self.cron)] if self.cron else [],
            "work_pool_name": self.pool,
            "work_queue_name": self.queue,
            "concurrency_limit": 1 if self.one_at_a_time else None,
            "concurrency_options": {"collision_strategy": "ENQUEUE"} if self.one_at_a_time else None,
            "job_variables": BEATING,
            "tags": ["varband", *self.tags],
            "enforce_parameter_schema": True,
        }


DEPLOYMENTS = (
    Deployment(
        flow="experiment",
        description="A whole study, from its pool of problems to the report. What the store has is reused.",
    ),
    Deployment(
        flow="search",
        description="A study's policies searched at test time: one answer a problem within a budget of tokens.",
    ),
    Deployment(
        flow="plan",
        module="chores",
        description="What a study would make, reuse and cost, and what it could see, as an artifact. Makes nothing.",
    ),
    Deployment(
        flow="make",
        named="zz_make",  # the last in Prefect's list
        description="Internal: one artifact of a study, or a shard of its rollouts, on a GPU worker. Runs with"
        " `gpu_pool` start it.",
        pool="gpu",
        queue="experiments",
        tags=("gpu", "internal"),
    ),
    Deployment(
        flow="reeval",
        module="chores",
        description="Kept adapters on the held-out problems, every night. Costs nothing while nothing has changed.",
        pool="gpu",
        queue="nightly",  # it waits for GPUs that no experiment wants
        tags=("nightly",),
        cron="0 2 * * *",
        one_at_a_time=True,
    ),
    Deployment(
        flow="report", description="The report of a study again, from what the store has. Never samples or trains."
    ),
    Deployment(
        flow="regrade",
        module="chores",
        description="Stored rollouts under the installed grader. Samples nothing, overwrites nothing.",
    ),
    Deployment(flow="gc", module="chores", description="Remove what nobody wants any more. The ledger stays."),
)


def of_study(title: str, study: Json) -> tuple[Deployment, ...]:
    """Deployments of one study: it, and its adapters every night. study: its form, filled in.

    Errors: UserError for a study that is called as a deployment of everybody's.
    """
    name = title.replace("/", "-")
    if name in {one.name for one in DEPLOYMENTS}:
        raise UserError(f"deploy: '{name}' is a built-in deployment; give the file another name")
    return (
        Deployment(
            flow="experiment",
            named=name,
            parameters={"study": study},
            description=f"The study {title}, from its pool of problems to the report. What the store has is reused.",
            tags=(name,),
        ),
        Deployment(
            flow="reeval",
            named=f"{name}-nightly",
            module="chores",
            parameters={"studies": [study]},
            description=f"Adapters of the study {title} on its held-out problems, every night.",
            pool="gpu",
            queue="nightly",
            tags=("nightly", name),
            cron="0 3 * * *",
            one_at_a_time=True,
        ),
    )


def _schedule(cron: str) -> Json:
    return {"schedule": {"cron": cron, "timezone": "UTC", "day_or": True}, "active": True}


def deploy(client: Any, wanted: Deployment) -> str:
    """See that the server has this deployment and its code; says what was done."""
    known, code = _known(client, wanted), wanted.of_code()
    if known is None:
        flow = client.request("POST", "/flows/", json={"name": wanted.flow}).json()
        body = {"name": wanted.name, "flow_id": flow["id"], **wanted.of_people(), **code}
        client.request("POST", "/deployments/", json=body)
        return f"deployment {wanted.name}: made"
    rewritten = ""
    if wanted.parameters:  # the study that it is of, as its file is now
        code["parameters"] = filled(known["parameters"], wanted.parameters)
        rewritten = changed_text(known["parameters"], code["parameters"])
    strange = _strange(code.get("parameters", known["parameters"]), code["parameter_openapi_schema"])
    if strange:  # with parameters that do not fit, the server would refuse the new form and the rest with it
        del code["parameter_openapi_schema"]
    # unchanged: left alone, because a change deletes the runs that are scheduled and with them perhaps tonight's
    if changed := {name: value for name, value in code.items() if known[name] != value}:
        client.request("PATCH", f"/deployments/{known['id']}", json=changed)
    return f"deployment {wanted.name}: {'renewed' if changed else 'there'}{rewritten}{strange}"


def _strange(parameters: Json, form: Json) -> str:
    """What people entered for the form of an earlier commit may not fit this one's."""
    from prefect.utilities.schema_tools import validate
    from prefect.utilities.schema_tools.validation import ValidationError

    try:
        validate(parameters, form, raise_on_error=True, ignore_required=True)
    except ValidationError as error:
        return f", but its parameters do not fit the form any more ({error}): correct them in the UI and deploy again"
    return ""


def _known(client: Any, wanted: Deployment) -> Json | None:
    asked = {"deployments": {"name": {"any_": [wanted.name]}}, "flows": {"name": {"any_": [wanted.flow]}}}
    found = client.request("POST", "/deployments/filter", json=asked).json()
    return found[0] if found else None
