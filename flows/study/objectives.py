"""The objectives that are compared over a study: what of its training each changes. Data; formulas: docs/training.md.

One direction under another name is not asked twice: `leave_one_out` differs from `centred` by a positive number, and so
do `ppo`, `tis`, `cispo` and `rloo` from the default loss while one update is made of each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flows.study.otherwise import Objective, followed
from flows.study.reading import Fault, Reading, Typed, parts_of, spelt
from flows.study.shape import Profile
from storage.errors import UserError
from tasks.domain.grpo.learner_config import BASELINE, LearnerConfig
from tasks.domain.grpo.losses import read_by, unread

#: Of what needs more than one update a batch to differ.
REUSED = {"minibatches": 2, "epochs": 2}
#: Of a training, what objectives are compared at, and where the study says it.
SHARED = {"seed": "seeds", "steps": "training.steps", "token_budget": "training.token_budget"}
#: By what the literature calls them, with its hyperparameters where they do not hang on the size of a batch.
CHANGES: dict[str, dict[str, Any]] = {
    "GRPO": {"loss": "grpo", "advantage": "standardised"},
    "DAPO": {"loss": "dapo", "advantage": "standardised", "clip_high": 0.28, **REUSED},
    "GSPO": {"loss": "gspo", "advantage": "standardised", "clip_low": 3e-4, "clip_high": 4e-4, **REUSED},
    "SAPO": {"loss": "sapo", "advantage": "standardised", **REUSED},
    "Clip-Cov": {"loss": "clip_cov", "advantage": "standardised", "cov_share": 0.02, **REUSED},
    "KL-Cov": {"loss": "kl_cov", "advantage": "standardised", "cov_share": 0.02, **REUSED},
    "REINFORCE++": {"advantage": "reinforce_plus_plus"},
    "GDPO": {"advantage": "gdpo"},
    "MaxRL": {"advantage": "max_rl"},
    "pass@k training": {"advantage": "pass_at_k"},
    "PKPO": {"advantage": "pkpo"},
    "best alone": {"advantage": "best_alone"},
    "entropic": {"advantage": "entropic"},
    "DARLING by trace": {"advantage": "darling_trace"},
    "DARLING by answer": {"advantage": "darling_answer"},
    "DARLING by encoder": {"advantage": "darling_encoded"},
    "VPO": {"advantage": "vpo"},
    "Multi-RLVR sum": {"advantage": "multi_rlvr_sum"},
    "Multi-RLVR best": {"advantage": "multi_rlvr_max"},
    "critique and refine": {"advantage": "refined"},
    "multi-agent": {"advantage": "multi_agent"},
    "UCB-mean": {"advantage": "ucb_mean", "bonus_gate": "none"},
    "UCB-mean gated": {"advantage": "ucb_mean"},
    "UCB-con": {"advantage": "ucb_constant", "bonus_gate": "none"},
    "batch exploration": {"advantage": "batch_exploration", "bonus_gate": "none"},
    "entropy bonus": {"entropy_weight": 0.01},
    "target entropy": {"entropy_target": 0.2},
}


def compared(study: Profile, token_budget: int) -> Profile:
    """A study whose first arm is trained by every objective, each on so many sampled tokens."""
    cap = study.rollouts.max_tokens
    # none ends before its tokens do, though its rollouts grow half as long
    training = replace(study.training, steps=2 * study.training.steps, token_budget=token_budget, max_tokens=cap)
    return replace(
        study,
        name=f"{study.name}/objectives",
        purpose="which objective keeps or rewards width? the same arm, problems, seeds and tokens under each",
        arms=study.arms[:1],
        seeds=(0, 1, 2),
        train_on="all",
        training=training,
        evaluation=replace(study.evaluation, group_size=1),
        benchmarks=(),
        objectives=tuple(catalogue(training, cap)),
    )


def catalogue(training: LearnerConfig, cap: int) -> Iterator[Objective]:
    """Each objective as it changes a training whose rollouts end at `cap` tokens; without those that do
    not go with it."""
    return (one for one in _tried(training, cap).values() if isinstance(one, Objective))


def _tried(training: LearnerConfig, cap: int) -> dict[str, Objective | UserError]:
    """Every objective by name, or why it does not go with this training."""
    # a fifth of the cap, as theirs
    overlong = {"overlong_cache": cap // 5, "max_tokens": training.max_tokens or cap}
    found: dict[str, Objective | UserError] = {}
    for name, how in (CHANGES | {"DAPO": CHANGES["DAPO"] | overlong}).items():
        try:
            found[name] = Objective(name=name, training=replace(training, **how))
        except UserError as error:
            found[name] = UserError(f"objective {name}: {error}")
    return found


def with_objectives(given: Any, base: Profile | None, study: Profile, reading: Reading) -> Profile | None:
    """Objectives of the base follow its training; a list chooses by name, a table changes the study's own training.
    Only what is chosen must go with it."""
    before = base.training if base else study.training
    kept = {one.name: followed(one, before, study.training) for one in study.objectives}
    tried = _tried(study.training, study.rollouts.max_tokens) | kept
    known = {name: one for name, one in tried.items() if isinstance(one, Objective)}
    tables = isinstance(given, Mapping)
    chosen = kept if given is None or tables else parts_of(given) if isinstance(given, Typed) else given
    for name in dict.fromkeys(name for name in chosen if isinstance(name, str)) if isinstance(chosen, Iterable) else ():
        if isinstance(wrong := tried.get(name), UserError):
            return reading.refuse(("training",) if chosen is kept else ("objectives",), str(wrong))
    if given is None:
        return replace(study, objectives=tuple(known[name] for name in kept))
    if not tables:
        named = Reading(known={"objectives": tuple(known.values())}, faults=reading.faults)
        return replace(study, objectives=named.several(Objective, given, (), ("objectives",)))
    made = {name: known[name] for name in kept}
    for name, table in given.items():
        old = known[name].training if name in known else study.training
        training = reading.record(LearnerConfig, table, old, ("objectives", name))
        if training is not None:
            reading.faults.extend(_of_table(name, table, old, training))
            made[name] = Objective(name=name, training=training)
    return replace(study, objectives=tuple(made.values()))


def _of_table(name: str, table: Mapping[str, Any], old: LearnerConfig, training: LearnerConfig) -> Iterator[Fault]:
    """What cannot be said of one objective: what it does not read, what all share, what the study's own is called."""
    if name == BASELINE:
        yield Fault(("objectives", name), f"'{name}' is what the study's own objective is called; name it otherwise")
    for setting in (field for field, value in table.items() if spelt(getattr(old, field)) != spelt(value)):
        path = ("objectives", name, setting)
        if setting in SHARED:
            yield Fault(path, f"all objectives have the same {setting}; set {SHARED[setting]} of the study")
        elif not read_by(training, setting):
            yield Fault(path, unread(setting, training))
