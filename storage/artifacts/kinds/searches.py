"""The kind of test-time search."""

from __future__ import annotations

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import columns


class Searches(
    Ref,
    kind="searches",
    schema=columns(
        "problem_id str, source str, arm str, adapter str?, step int, seed big, method str",
        "round int",  # from 0
        "node str",  # what the ledger files the completion under: context and index
        "operator str",  # draw: of the problem itself; revise, critique, score, …: of a question that holds its parents
        "parents str",  # nodes, parted by blanks
        "question str?",  # asked in the problem's place
        "completion str?, answer str?",  # as read without a gold; null where it was cut
        "correct bool",  # against the gold, which no method sees; false of what answers another question
        "finish str?, num_prompt_tokens int, num_tokens int, logprob_sum real?",
        "score real?, num_scored_tokens int",  # of a reward model, and what it read of this node's path
        "cut str?",  # why it could not be sampled
        "chosen str?, chosen_answer str?, chosen_correct bool",  # what the search would answer after this round
        "grader_version str",
    ),
):
    """The tree of one policy's search for each problem, under one method: a row a node."""
