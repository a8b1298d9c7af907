r"""The adversarial suite's whole completions: what stands outside the answer region must not count.

Signs as in `grader_cases`.
"""

from __future__ import annotations

_LOOP = r"so \boxed{5}? no"
#: Whole completions: (scaffold, completion, gold, finish, verdict).
COMPLETIONS: tuple[tuple[str, str, str, str, str], ...] = (
    ("panel", "<mutipersonaDebate>it is 7</mutipersonaDebate> <answer>7</answer>", "7", "stop", "="),
    ("panel", "<mutipersonaDebate>it is 7</mutipersonaDebate> <answer>8</answer>", "7", "stop", "x"),
    ("panel", "<mutipersonaDebate>the answer is 7", "7", "length", "-"),
    ("panel", "<mutipersonaDebate>the answer is <answer>7</answer></mutipersonaDebate>", "7", "stop", "-"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> The answer is 7.", "7", "stop", "-"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7", "7", "stop", "="),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7", "7", "length", "-"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7</answer> <answer>8</answer>", "7", "stop", "?"),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer>7</answer> <answer>7.0</answer>", "7", "stop", "="),
    ("panel", "<mutipersonaDebate>x</mutipersonaDebate> <answer></answer>", "7", "stop", "-"),
    ("panel", r"<mutipersonaDebate>\boxed{7}</mutipersonaDebate> <answer>8</answer>", "7", "stop", "x"),
    ("panel", r"<mutipersonaDebate>x</mutipersonaDebate> \boxed{7} <answer>8</answer>", "7", "stop", "x"),
    ("panel", r"<mutipersonaDebate>x</mutipersonaDebate> <answer>\boxed{7}</answer>", "7", "stop", "="),
    ("thinking", r"<think>is it 8?</think> It is \boxed{7}.", "7", "stop", "="),
    ("thinking", r"<think>\boxed{7}</think> I give up.", "7", "stop", "-"),
    ("thinking", r"<think>so \boxed{7}", "7", "length", "-"),
    ("thinking", r"is it 8? no</think> \boxed{7}", "7", "stop", "="),
    ("thinking", r"<think>x</think> The answer is 7.", "7", "stop", "-"),
    ("thinking", r"<think>x</think> \boxed{7} or \boxed{8}", "7", "stop", "?"),
    ("thinking", r"<think>x</think> \boxed{7}, that is \boxed{7}", "7", "stop", "="),
    ("thinking", r"<think>x</think> \boxed{70", "7", "length", "-"),
    ("thinking", r"<think>x</think> \boxed{7", "7", "length", "-"),
    ("thinking", r"<think>x</think> \boxed{7", "7", "stop", "="),
    ("thinking", r"<think>\boxed{7}</think> wait <think>x</think> \boxed{8}", "7", "stop", "x"),
    ("thinking", r"<think>" + _LOOP * 500, "5", "length", "-"),
    ("no_panel", "3+4=7 <answer>7</answer>", "7", "stop", "="),
    ("no_panel", "3+4=7", "7", "stop", "-"),
    ("no_panel", "the answer is 7 <answer>8</answer>", "7", "stop", "x"),
    ("no_panel", "", "7", "stop", "-"),
    ("think_tags", "<think>7</think> <answer>7</answer>", "7", "stop", "="),
    ("think_tags", "<think>7</think> <answer>9</answer>", "7", "stop", "x"),
    ("think_tags", "<think>7</think>", "7", "stop", "-"),
    ("think_tags", "<think>x <answer>7</answer>", "7", "stop", "-"),
    ("panel", "<mutipersonaDebate>Ann: <answer>7</answer>? Bob: no", "7", "length", "-"),
    ("panel", "<answer>7</answer>", "7", "stop", "="),
)
