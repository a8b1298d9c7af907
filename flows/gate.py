"""The gate between screening and training. The gate's rule is in tasks/domain/gate.py."""

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from flows.artifacts import Screened
from flows.study.resolve import Study
from storage.artifacts.schemas import Splits
from storage.artifacts.store import Store
from storage.sql import query
from tasks.domain.gate import ScreenedArm, reasons
from tasks.measures.groups import FORM_COLUMNS, form_of
from tasks.stage import Condition

#: The last line of the gate's message. A process that receives only the message recognises the gate by it.
ADVICE = "\ncorrect the prompt, the lesson or max_tokens"
#: Number of completions whose ends are printed, and characters of each.
SHOWN, END = 3, 160


def gate_of(study: Study, splits: Splits, screened: Sequence[Screened]) -> Condition | None:
    """Return the condition for training; None with `gate.anyway`. screened: the arms that train."""
    after = tuple(ref for one in screened for ref in (one.rollouts, one.trained_on))
    return None if study.profile.gate.anyway else Condition(after, partial(why_closed, study, splits, screened))


def why_closed(study: Study, splits: Splits, screened: Sequence[Screened], store: Store) -> str:
    """Return why the stored screenings do not allow the study to train; empty if they do. The message ends with the
    last words of three completions."""
    there = {one.arm: one for one in screened if all(map(store.fresh, (one.rollouts, one.trained_on)))}
    arms = [
        ScreenedArm(
            arm=one.arm,
            shares=_shares(store, one) if one.arm in there else None,
            live=_live(store, one, splits, study.profile.train_on) if one.arm in there else None,
            taught=one.start.policy.adapter is not None,
        )
        for one in screened
    ]
    found = list(reasons(arms, study.profile.gate))
    if not found:
        return ""
    blamed = [there[arm] for arm in dict.fromkeys(arm for one in found for arm in one.arms) if arm in there]
    by_turns = zip_longest(*(_ends(store, one) for one in blamed))
    ends = [end for turn in by_turns for end in turn if end is not None][:SHOWN]
    lines = ["the gate is closed:", *(f"- {one.words}" for one in found)]
    lines += [f"the last words of {len(ends)} completions:", *ends] if ends else []
    return "\n".join(lines) + ADVICE


def _shares(store: Store, one: Screened) -> dict[str, Any]:
    """Return the shares of an arm's rollouts. A scaffold without tags has no invalid tags."""
    scaffold = one.start.policy.scaffold
    tagless = {} if scaffold.pairs or scaffold.code else {"invalid_tags": 0.0}
    return form_of(store.read(one.rollouts, FORM_COLUMNS)) | tagless


def _live(store: Store, one: Screened, splits: Splits, train_on: str) -> int:
    """Return the number of training problems that give a gradient: those in the variance band, or, if the arm trains on
    all problems, those whose rollouts differ in verdict or tags."""
    live, rows = "is_variance(band)", store.read(one.trained_on)
    if train_on == "all":
        several = "select problem_id, count(distinct (correct, tag_valid)) > 1 as differ from t group by problem_id"
        live, rows = "differ", query(several, t=store.read(one.rollouts, ["problem_id", "correct", "tag_valid"]))
    held = store.read(splits)
    found = query(f"from rows join held using (problem_id) where {live} and split = 'train'", rows=rows, held=held)
    return found.num_rows


def _ends(store: Store, one: Screened) -> list[str]:
    """Return the ends of completions. Completions without an answer or valid tags, and truncated ones, come first."""
    rows = store.read(one.rollouts, ["problem_id", "rollout", "completion", *FORM_COLUMNS])
    worst = query(
        """
        select completion from t
        order by (verdict = 'no_answer' or not tag_valid or finish = 'length') desc, rollout, problem_id limit $n
        """,
        {"n": SHOWN},
        t=rows,
    )
    return [f"{one.arm} «…{' '.join(text.split())[-END:]}»" for text in worst["completion"].to_pylist()]
