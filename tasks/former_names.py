"""What artifacts were called before a policy held its scaffold by content (docs/decisions/0008).

Until then a recipe spelt every default out, named an arm where its scaffold is meant, and knew a model by all files of
its folder. A store of that time is found under those names, as long as nothing that they leave unsaid has changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from storage.artifacts.fingerprint import Ruled, fingerprint, is_default, recorded
from storage.artifacts.manifest import identity_of, one_by_one, refs_in
from storage.artifacts.ref import Ref
from tasks.domain.grpo.learner_config import FORMER_FIELDS
from tasks.domain.policies import Policy

K = TypeVar("K", bound=Ref)
#: Arguments of every stage of then, those of groups one by one.
STAGES = {
    "audit_designs": "pool splits screenings trainings final diversities",
    "audit_published": "folder designs pool splits pools bands diversities evaluations train_group_size",
    "build_pool": "sources policy",
    "check_tokens": "tokens math aime",
    "choose_benchmark": "name pool trained splits levels per_level seed",
    "classify_bands": "rollouts",
    "compare_diversity": "diversities draws seed",
    "compare_gains": "evaluations",
    "contrast_pass_at_k": "rollouts ks draws seed",
    "cross_bands": "bands train_group_size",
    "embed_traces": "rollouts encoder",
    "estimate_pass_at_k": "rollouts ks draws seed",
    "find_disputes": "rollouts pool",
    "find_hard_problems": "rollouts",
    "follow_to_the_end": "rollouts",
    "import_bands": "file arm",
    "import_designs": "folder",
    "import_diversity": "file label arm window",
    "import_groups": "file arm",
    "import_pool": "files",
    "import_pools": "files",
    "import_series": "steps spread",
    "import_split": "pool heldout_source_ids",
    "import_splits": "heldout others",
    "import_trajectory": "trajectory pools",
    "keep_clear": "pool splits studied heldout",
    "keep_joint": "own others",
    "list_pool_issues": "pool",
    "make_synthetic_pool": "per_source seed",
    "measure_answers": "rollouts",
    "measure_ceilings": "embeddings",
    "measure_diversity": "embeddings",
    "measure_tokens": "rollouts",
    "measure_votes": "rollouts ks seed",
    "regrade_rollouts": "rollouts pool grader_version settled",
    "render_report": (
        "profile purpose question model arms pool splits benchmarks screenings bands trainings evaluations "
        "final diversities answers sliced crosstab curves diversity passk tokens hard audit gains contrasts "
        "votes ceilings asymptotes slices slice_contrasts"
    ),
    "sample_rollouts": "pool splits policy sampling group_size split training lora_rank",
    "screen_adaptively": "pool splits policy sampling group_size split training lora_rank",
    "split_arms": "splits bands",
    "split_pool": "pool heldout_per_source seed",
    "train_adapter": "pool splits bands start learner rollouts evaluation evaluation_group_size init",
    "training_curves": "trainings evaluations pool splits",
}
#: Fields of every dataclass that a recipe of then could hold.
TYPES = {
    "BaseModel": "name sha256",
    "EncoderSpec": "name weights_sha256 max_tokens windows",
    "HubSpec": "name sha256 only guards hub",
    "LearnerConfig": FORMER_FIELDS,
    "Policy": "arm model adapter adapter_step step seed",
    "PoolPolicy": "on_issue also_exclude limit grader",
    "PublishedFile": "path sha256",
    "PublishedFolder": "sha256",
    "Sampling": "max_tokens temperature top_p seed",
    "SourceSpec": "name sha256 only guards",
}
#: Stages that got another name since, as later stores too know them.
RENAMED = {"compare_solved": "find_hard_problems"}
#: The scaffold of every arm, by digest, as it was then.
SCAFFOLDS = {
    "panel": "c7cab11302372bd0",
    "thinking": "b0a9c0294ff8b2ca",
    "no_panel": "17e0dbd646c203f0",
    "think_tags": "5327e0ad735dca99",
}
#: (stage, its version now) → the version of then, where this argument is null: rows are what they were.
SAME_ROWS = {("train_adapter", 3): (2, "init")}


class _Unsaid(Exception):
    """Something that a name of then could not say."""


def former_refs(
    kind: type[K], stage: str, version: int, arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[K]:
    """What the artifact of a stage call was called, the latest name first."""
    was, named = RENAMED.get(stage, stage), kind.FORMER or kind.KIND
    later = fingerprint(identity_of(was, version, arguments, defaults)) if was != stage else None
    return [kind(named, f) for f in (later, former_fingerprint(was, version, arguments, defaults)) if f]


def former_fingerprint(
    stage: str, version: int, arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> str | None:
    """The fingerprint that this stage call had then; null if it had none, or would have made something else."""
    then, told, inputs = set(STAGES.get(stage, "").split()), {}, {}
    earlier, argument = SAME_ROWS.get((stage, version), (version, ""))
    try:
        for name, value, default, is_label in one_by_one(arguments, defaults):
            refs = refs_in(value)
            if name in then and refs is not None:
                inputs[name] = refs
            elif name in then:
                told[name] = _then(value)
            elif not is_label and (refs is not None or not is_default(value, default)):
                return None
    except _Unsaid:
        return None
    if not then or then != {*told, *inputs}:
        return None
    version = earlier if arguments.get(argument) is None else version
    return fingerprint({"stage": stage, "version": version, "arguments": told, "inputs": inputs})


def _then(value: Any) -> object:
    """The canonical form of then. Errors: _Unsaid for what it leaves unsaid and is not what it was."""
    if isinstance(value, list | tuple):
        return [_then(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return recorded(value)
    kind = type(value).__name__
    names = TYPES.get(kind, "").split()
    later = [f for f in dataclasses.fields(value) if f.compare and f.name not in names]
    if isinstance(value, Policy):
        later = [f for f in later if f.name != "scaffold"]
        if value.scaffold.digest != SCAFFOLDS.get(value.arm):
            raise _Unsaid
    if not names or not all(is_default(getattr(value, f.name), f.default) for f in later):
        raise _Unsaid
    if isinstance(value, Ruled) and value.versions():
        raise _Unsaid
    told = {name: _then(getattr(value, name)) for name in names}
    formerly = getattr(value, "formerly", None)
    if formerly == "":
        raise _Unsaid
    if formerly is not None:
        told |= {name: formerly for name in names if name.endswith("sha256")}
    return {"is": kind, **told}
