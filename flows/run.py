"""Plan, then run: what is there is said at once, without an orchestrator; only what is missing is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flows.experiment import experiment
from flows.resolve import Study
from storage.artifacts import Ref
from storage.store import Store
from tasks.engines.toolbox import Hardware, Toolbox
from tasks.stage import Progress, Session, Step, session


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a plan. `reused`: the store has it and nothing that it came from will be remade."""

    step: Step
    reused: bool


def plan(study: Study, store: Store, dag: Callable[[Study], object] = experiment) -> list[Planned]:
    """The DAG's steps in order, each once, without making any."""
    planning = Session(store, Toolbox(), planning=True)
    with session(planning):
        dag(study)
    steps = list({step.ref: step for step in planning.steps}.values())
    remade: set[str] = set()
    planned = []
    for step in steps:
        inputs = {ref for refs in step.recipe.inputs.values() for ref in refs}
        reused = not (inputs & remade) and store.fresh(step.ref)
        if not reused:
            remade.add(str(step.ref))
        planned.append(Planned(step, reused))
    return planned


def execute(
    study: Study,
    store: Store,
    hardware: Hardware,
    listener: Callable[[Progress], None],
    dag: Callable[[Study], Ref] = experiment,
) -> Ref:
    """Run the DAG in this process, without an orchestrator. Returns the report."""
    tools = Toolbox(hardware, dict(study.places))
    current = Session(store, tools, listener=listener)
    try:
        with session(current):
            return dag(study)
    finally:
        tools.close()
