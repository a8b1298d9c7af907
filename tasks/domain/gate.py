"""The gate between screening and training: limits on the screening of an arm, and why an arm fails them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic.dataclasses import dataclass as checked

from tasks.domain.ranges import Checked, Share

#: Shares of an arm's rollouts, each with a limit of the same name in `Gate` and with its words in a message.
SHARES = {"no_answer": "give no answer", "invalid_tags": "have no valid tags", "truncated": "are cut off"}


@checked(frozen=True, slots=True, kw_only=True)
class Gate(Checked):
    """Limits on the screening of each arm that trains. Beyond a limit the run pauses before the training."""

    invalid_tags: Share = 0.5
    """Largest share of an arm's rollouts without valid tags."""
    no_answer: Share = 0.5
    """Largest share of an arm's rollouts without an answer."""
    truncated: Share = 0.5
    """Largest share of an arm's rollouts cut off at `max_tokens`."""
    truncated_apart: Share = 0.25
    """Largest difference between the arms' shares of rollouts cut off at `max_tokens`."""
    least_accuracy: Share = 0.0
    """Lowest allowed mean accuracy of an arm."""
    most_accuracy: Share = 1.0
    """Highest allowed mean accuracy of an arm."""
    anyway: bool = False
    """Train even if a limit is not met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedArm:
    """The screening of an arm.

    - shares: the shares named in SHARES, and `accuracy`; None before the arm is screened.
    - live: number of training problems whose rollouts earned different rewards; None if unknown.
    - taught: the arm starts from an adapter (of a lesson, or imported).
    """

    arm: str
    shares: dict[str, Any] | None
    live: int | None
    taught: bool


class Reason(NamedTuple):
    """One failed limit. arms: the arms that fail. of_form: a comparison would show form, not ability."""

    arms: tuple[str, ...]
    words: str
    of_form: bool = False


def reasons(arms: Sequence[ScreenedArm], gate: Gate) -> Iterator[Reason]:
    """Yield the reasons against training (little to learn, or arms that are not comparable), if any.

    >>> sound = {"invalid_tags": 0.02, "no_answer": 0.1, "truncated": 0.01, "accuracy": 0.3}
    >>> panel = ScreenedArm(arm="panel", shares=sound, live=475, taught=True)
    >>> mute = ScreenedArm(arm="thinking", shares=sound | {"invalid_tags": 1.0}, live=0, taught=False)
    >>> for reason in reasons([panel, mute], Gate()): print(reason.words)
    100 % of the rollouts of thinking have no valid tags (at most 50 %)
    no training problem of thinking gives a gradient: its rollouts are all alike
    thinking starts without a lesson, and panel had one
    >>> list(reasons([panel], Gate(invalid_tags=0.05, truncated=0.05, least_accuracy=0.2, most_accuracy=0.6)))
    []
    """
    screened = [(one, one.shares) for one in arms if one.shares is not None]
    for one, shares in screened:
        for name, words in SHARES.items():
            if shares[name] > (most := getattr(gate, name)):
                text = f"{_percent(shares[name])} of the rollouts of {one.arm} {words} (at most {_percent(most)})"
                yield Reason((one.arm,), text, of_form=True)
        if not gate.least_accuracy <= shares["accuracy"] <= gate.most_accuracy:
            limits = f"{_percent(gate.least_accuracy)} to {_percent(gate.most_accuracy)}"
            text = f"the mean accuracy of {one.arm} is {_percent(shares['accuracy'])} (within {limits})"
            yield Reason((one.arm,), text)
        if one.live == 0:
            yield Reason((one.arm,), f"no training problem of {one.arm} gives a gradient: its rollouts are all alike")
    by_cut = sorted(screened, key=lambda pair: pair[1]["truncated"])
    if by_cut and by_cut[-1][1]["truncated"] - by_cut[0][1]["truncated"] > gate.truncated_apart:
        (least, few), (most, many) = by_cut[0], by_cut[-1]
        yield Reason(
            (least.arm, most.arm),
            f"{_percent(few['truncated'])} of the rollouts of {least.arm} are cut off and"
            f" {_percent(many['truncated'])} of {most.arm} (at most {_percent(gate.truncated_apart)} apart)",
            of_form=True,
        )
    untaught = tuple(one.arm for one in arms if not one.taught)
    if untaught and (taught := tuple(one.arm for one in arms if one.taught)):
        start = "starts" if len(untaught) == 1 else "start"
        words = f"{' and '.join(untaught)} {start} without a lesson, and {' and '.join(taught)} had one"
        yield Reason(untaught, words)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
