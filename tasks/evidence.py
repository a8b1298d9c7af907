"""Inputs of measures, the registry of standard measures, and how rollouts were sampled and embedded."""

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.artifacts.fingerprint import restored
from storage.artifacts.manifest import Recipe
from storage.artifacts.ref import Ref
from storage.artifacts.schemas import ON_REQUEST, Embeddings, Evidence, Partitions, Pool, Rollouts, Splits, Training
from storage.errors import UserError
from tasks.domain.policies import BaseModel, Policy
from tasks.domain.scaffolds import ARMS, MATH, Scaffold
from tasks.stage import Stage, beside, store


@dataclass(frozen=True, slots=True, kw_only=True)
class Available(Evidence):
    """Inputs that a standard measure may use, by the names of its arguments.

    objectives: names, one per training and end of theirs. objective_starts: the arms' rollouts before training.
    objective_start_answers, objective_end_answers: classes of the answers of each start and end. partitions,
    embeddings: for the rollouts of `final`. deep: the same policies with the number of rollouts for asymptotes. arms:
    names, in order. ks: see pass@k. budgets: tokens per problem of a search, ascending.
    """

    pool: Pool
    splits: Splits
    partitions: tuple[Partitions, ...]
    deep: tuple[Rollouts, ...]
    embeddings: tuple[Embeddings, ...]
    arms: tuple[str, ...]
    ks: tuple[int, ...]
    train_group_size: int
    budgets: tuple[int, ...]
    objectives: tuple[str, ...] = ()
    objective_trainings: tuple[Training, ...] = ()
    objective_starts: tuple[Rollouts, ...] = ()
    objective_ends: tuple[Rollouts, ...] = ()
    objective_start_answers: tuple[Partitions, ...] = ()
    objective_end_answers: tuple[Partitions, ...] = ()


# ---- standard measures: tables that every study makes and that only the report's queries read
#
# A printed measure is two files: `tasks/measures/<name>.py` (columns, table, stage) and
# `storage/reading/queries/report_<name>.sql` (figure and query). No other file needs to name it.

P = ParamSpec("P")
K = TypeVar("K", bound=Ref)


@dataclass(frozen=True, slots=True)
class _Standard:
    stage: Stage[..., Any]
    taken: Mapping[str, str]  # argument → field of Available
    needs: Sequence[str]


_STANDARD: dict[str, _Standard] = {}


def standard_measure(name: str, *, needs: Sequence[str] = (), **taken: str) -> Callable[[Stage[P, K]], Stage[P, K]]:
    """Register this stage as a standard measure. Every study makes its artifact, and queries read it as `name`. An
    argument gets the field of Available with its name; other arguments keep their defaults. taken: argument → field, if
    the names differ. needs: fields; without one of them the measure is not made."""

    def declare(stage: Stage[P, K]) -> Stage[P, K]:
        named = {argument: taken.get(argument, argument) for argument in inspect.signature(stage.function).parameters}
        known = {field.name for field in fields(Available)}
        _STANDARD[name] = _Standard(stage, {one: field for one, field in named.items() if field in known}, needs)
        return stage

    return declare


def names_of_measures() -> set[str]:
    for module in pkgutil.iter_modules(import_module("tasks.measures").__path__, "tasks.measures."):
        import_module(module.name)
    return set(_STANDARD)


def standard_measures(available: Available, chosen: Sequence[str] = ()) -> dict[str, Ref]:
    """Make the standard measures of the available artifacts, and return them by name. chosen: names of those to make,
    in addition to those that other settings of the study require; empty means all."""
    names_of_measures()
    return {
        name: measure.stage(**{argument: getattr(available, field) for argument, field in measure.taken.items()})
        for name, measure in sorted(_STANDARD.items())
        if (not chosen or name in {*chosen, *ON_REQUEST}) and all(getattr(available, field) for field in measure.needs)
    }


# ---- how rollouts were sampled, and their vectors


def traced(rollouts: Ref, has: Callable[[Recipe], bool]) -> Recipe | None:
    """Return the nearest recipe with this property, among those of `rollouts` and of all that it was made from."""
    recipe = store().manifest(rollouts).recipe
    while not has(recipe):
        onward = recipe.inputs.get("rollouts") or recipe.inputs.get("embeddings")
        if not onward:
            return None
        recipe = store().manifest(Ref.parse(onward[0])).recipe
    return recipe


def sampled_with(rollouts: Ref) -> Mapping[str, object] | None:
    """Return the arguments of the stage that sampled these rollouts; None for imported rollouts."""
    recipe = traced(rollouts, lambda one: "policy" in one.arguments)
    return recipe.arguments if recipe else None


def scaffold_of(rollouts: Ref) -> Scaffold | None:
    """Return the scaffold in the recipe of rollouts, even if its arm has changed; None for imported ones."""
    arguments = sampled_with(rollouts)
    return restored(Policy, arguments["policy"]).scaffold if arguments else None


def answer_kind_of(rollouts: Ref) -> str:
    scaffold = scaffold_of(rollouts)
    return MATH if scaffold is None else scaffold.answer_kind


def base_of(training: Ref) -> BaseModel:
    """Return the base model of a training or an imported adapter."""
    given = store().manifest(training).recipe.arguments
    return restored(Policy, given["start"]).model if "start" in given else restored(BaseModel, given["base"])


def known_scaffolds() -> dict[str, Scaffold]:
    """Return the built-in scaffolds and those in the store's manifests, by digest."""
    found = {arm.scaffold.digest: arm.scaffold for arm in ARMS.values()}
    for ref in store().refs():
        given = store().manifest(ref).recipe.arguments
        for policy in (given.get(name) for name in ("policy", "start", "second")):
            if isinstance(policy, dict) and "scaffold" in policy:
                scaffold = restored(Policy, policy).scaffold
                found.setdefault(scaffold.digest, scaffold)
    return found


VECTORS = ["problem_id", "arm", "step", "seed", "rollout", "embedding"]


def with_vectors(parts: Iterable[pa.Table], embeddings: Embeddings) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield each part (of whole problems) with the vectors of its whole traces (columns VECTORS)."""
    whole, at = pc.field("window") == "whole", ["window", "problem_id"]
    known = set(store().keys(embeddings, at).filter(whole)["problem_id"].unique().to_pylist())
    schema = pa.schema([Embeddings.schema.field(name) for name in VECTORS])
    vectors = (part.filter(whole) for part in store().groups(embeddings, at, [*VECTORS, "window"]))
    yield from beside(parts, vectors, known, schema)


def matrix(vectors: pa.ChunkedArray) -> np.ndarray:
    """Return the (N, D) array of a column of lists. Raise UserError if the lists have unequal lengths."""
    whole = vectors.combine_chunks()
    lengths = np.unique(np.diff(whole.offsets.to_numpy()))
    if len(lengths) != 1:
        raise UserError(f"embeddings have vectors of {len(lengths)} lengths, so they come from more than one encoder")
    return whole.flatten().to_numpy(zero_copy_only=False).reshape(len(whole), -1)
