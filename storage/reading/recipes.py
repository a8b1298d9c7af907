"""What reading shows of stored recipes: only these fields, whatever else the version that wrote them knew."""

from __future__ import annotations

from dataclasses import dataclass

from storage.artifacts.fingerprint import restored
from storage.artifacts.manifest import Recipe

#: Inputs of reports that have another name now.
FORMER_INPUTS = {"hard": "solved_by", "gains": "gain_differences"}


@dataclass(frozen=True, slots=True)
class ReportArguments:
    """arms: in the order in which everything lists and colours them. title: a team's own study's. model: on which.
    changes, settings: what differs from the profile that it is based on, and all of it as a file."""

    profile: str
    arms: tuple[str, ...]
    title: str = ""
    changes: tuple[str, ...] = ()
    settings: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class _Policy:
    arm: str


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    sha256: str


def report_arguments(recipe: Recipe) -> ReportArguments:
    """Errors: UserError for a report of another version of its stage."""
    return restored(ReportArguments, recipe.arguments)


def report_inputs(recipe: Recipe) -> dict[str, list[str]]:
    """Inputs of a report by the names that queries of today know them by."""
    return {FORMER_INPUTS.get(name, name): refs for name, refs in recipe.inputs.items()}


def arm_of(recipe: Recipe) -> str | None:
    """The arm of the policy that was sampled from or trained; null where there is none.

    Errors: UserError for a policy without an arm.
    """
    policy = recipe.arguments.get("policy") or recipe.arguments.get("start")
    named = isinstance(policy, dict) and policy.get("is") == "Policy"
    return restored(_Policy, policy).arm if named else None


def file_of(recipe: Recipe) -> str | None:
    """Path of the published file that an artifact was imported from; null where it was not."""
    found: _File | None = restored(_File | None, recipe.arguments.get("file"))
    return found.path if found else None


def published_files(recipe: Recipe) -> dict[str, str]:
    """sha256 by path of the published files that a recipe names itself."""
    found: dict[str, str] = {}
    for value in recipe.arguments.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and one.get("is") == "PublishedFile":
                file = restored(_File, one)
                found[file.path] = file.sha256
    return found
