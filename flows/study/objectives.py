"""The objectives that a study compares, as changed settings of its training. The formulas are in docs/training.md.

Of equivalent objectives only one is listed: `leave_one_out` differs from `centred` by a positive factor, and `ppo`,
`tis`, `cispo` and `rloo` equal the default loss if each batch gets one update.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flows.study.profile import Objective, Profile
from flows.study.reading import Fault, Tables, merged, named, spelt, validated
from tasks.domain.grpo.learner_config import BASELINE, LearnerConfig
from tasks.domain.grpo.losses import LOSSES, read_by, unread

#: Settings for objectives that would equal another one if each batch got a single update.
REUSED = {"minibatches": 2, "epochs": 2}
#: Settings that all objectives share, each with the setting of the study that it comes from.
SHARED = {"seed": "seeds", "steps": "training.steps", "token_budget": "training.token_budget"}
#: Objectives by their names in the literature, with its hyperparameters, unless these depend on the batch size.
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
    """Return a study whose first arm is trained with every objective, each on this many sampled tokens."""
    cap = study.rollouts.max_tokens
    # twice the steps, because the token budget must end each training, even if its rollouts get half as long
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
        objectives=_made(catalogue(training, cap), training, faults=[]),  # those that are compatible with it
    )


def catalogue(training: LearnerConfig, cap: int) -> dict[str, dict[str, Any]]:
    """Return the settings that each objective changes in a training whose rollouts are at most `cap` tokens long.
    DAPO's length penalty begins at four fifths of `cap`, as in its paper."""
    overlong = {"overlong_cache": cap // 5, "max_tokens": training.max_tokens or cap}
    return CHANGES | {"DAPO": CHANGES["DAPO"] | overlong}


def objectives_of(study: Profile, base: Profile | None, given: object, faults: list[Fault]) -> tuple[Objective, ...]:
    """Return the objectives of a changed study. Objectives of the base study follow the changed training. given: a list
    of names, or a table for each objective with its changes."""
    old = {one.name: changes(one.training, base.training) for one in base.objectives} if base else {}
    known = catalogue(study.training, study.rollouts.max_tokens)
    tables = old if given is None else named(given, old, known, ("objectives",), faults)
    for name, table in tables.items():
        for setting in SHARED.keys() & (table.keys() if isinstance(table, Mapping) else ()):
            words = f"all objectives have the same {setting}; set {SHARED[setting]} of the study"
            faults.append(Fault(("objectives", name, setting), words))
    made = _made(tables, study.training, faults)
    for one in made:
        for setting in changes(one.training, study.training):
            if not read_by(one.training, setting):
                faults.append(Fault(("objectives", one.name, setting), unread(setting, one.training)))
    return made


def alike(study: Profile) -> list[str]:
    """Return a sentence about objectives that train in the same way, and why."""
    groups = defaultdict[object, list[str]](list)
    for name, training in [(BASELINE, study.training), *((one.name, one.training) for one in study.objectives)]:
        groups[_first_update(training)].append(name)
    words = (
        "train alike: with one update per batch the trained policy still equals the sampling policy, where these losses"
        " have the same gradient direction; set training.epochs or training.minibatches above 1, or leave one out"
    )
    return [f"objectives {', '.join(map(repr, names))} {words}" for names in groups.values() if len(names) > 1]


def _first_update(training: LearnerConfig) -> object:
    """Return a key that is equal for two trainings with the same updates. If each batch gets one update, factors of the
    gradient and clipping make no difference."""
    loss = LOSSES[training.loss]
    if training.updates > 1 or training.staleness or training.grad_clip or loss.weigh or not loss.reinforces:
        return training
    own = {"loss", "advantage", *loss.reads}
    read = {name: value for name, value in spelt(training).items() if name not in own and read_by(training, name)}
    advantage = {"leave_one_out": "centred"}.get(training.advantage, training.advantage)
    return advantage, loss.reduction == "mean_of_means", str(read)


def changes(training: LearnerConfig, before: LearnerConfig) -> dict[str, Any]:
    """Return the fields in which two trainings differ, as in a file."""
    old = spelt(before)
    return {name: value for name, value in spelt(training).items() if value != old[name]}


def _made(tables: Tables, training: LearnerConfig, faults: list[Fault]) -> tuple[Objective, ...]:
    before = spelt(training)
    made = {
        name: validated(LearnerConfig, merged(before, table), ("objectives", name), faults)
        for name, table in tables.items()
    }
    return tuple(Objective(name=name, training=one) for name, one in made.items() if one is not None)
