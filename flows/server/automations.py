"""Automations of the Prefect server: detect lost machines, restart their runs, and notify people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows.running.on_prefect import TRIES

#: A flow run sends a heartbeat every 30 s (`PREFECT_FLOWS_HEARTBEAT_FREQUENCY`); after three missed ones its machine
#: counts as lost.
LOST_SECONDS = 90
#: Names of states that send a notification. `Crashed` is not one of them: such a run is started again automatically.
NOTIFY = ("Failed", "Drifted", "Unchecked", "Parked")
FINAL = ("Completed", "Cancelled", "Crashed", "Suspended", "Paused", *NOTIFY)
#: A suspended run gives the reason in an event, because its state cannot.
PARKED_EVENT = "varband.parked"
LOST_TOO_OFTEN = f"It was lost {TRIES + 1} times and does not start again by itself."
Resource = dict[str, str | list[str]]
Json = dict[str, Any]
ANY_RUN: Resource = {"prefect.resource.id": "prefect.flow-run.*"}
#: Deployments that send notifications: all but the one of pieces of work, whose parent run notifies once.
WHOLE: Resource = {"prefect.resource.role": "deployment", "prefect.resource.name": "!zz_make"}
#: A notification block of this name, of any kind, receives the notifications.
BLOCK = "varband"


def states(names: tuple[str, ...]) -> set[str]:
    """The events of runs that enter these states."""
    return {f"prefect.flow-run.{name}" for name in names}


def _trigger(match: Resource, related: Resource, expect: set[str], after: str = "", within: int = 0) -> Json:
    """Return a trigger per flow run: when one of these events arrives, or with `after`, when none follows it for that
    many seconds."""
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


def register(client: Any) -> Iterator[str]:
    ended, beat, pending = states(FINAL), "prefect.flow-run.heartbeat", "prefect.flow-run.Pending"
    # bounded: one that was started this often, or that cannot even start, is left to people
    started: Resource = {**ANY_RUN, "prefect.run-count": [str(n) for n in range(1, TRIES + 1)]}
    # a sub-flow starts again with its parent; started alone, nothing would ever run it
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
    """Notifications and their texts; nothing without a notification block."""
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
    """An automation that is up to date is left alone: rewriting it would lose the runs it is watching."""
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
    """Return a description without ids, which differ in every description of a trigger."""
    if isinstance(value, dict):
        return {k: _content(v) for k, v in value.items() if k != "id"}
    return sorted(map(_content, value), key=str) if isinstance(value, list) else value
