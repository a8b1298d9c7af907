"""A distribution of another team's in a folder, as pip installs it: graders, a scaffold, an objective, losses,
rewards."""

from pathlib import Path

ENTRY_POINTS = """
[varband.graders]
clock = lab_tasks.clock
broken = lab_tasks.nowhere
raising = lab_tasks.raising
unequal = lab_tasks.unequal
neither = lab_tasks.faulty:neither
nothing = lab_tasks.faulty:nothing
[varband.scaffolds]
reversed = lab_tasks.reversed
fixed = lab_tasks.faulty:fixed
unread = lab_tasks.faulty:unread
[varband.objectives]
from_middle = lab_tasks.middle:from_middle
endless = lab_tasks.faulty:endless
[varband.losses]
doubled = lab_tasks.doubled:doubled
undeclared = lab_tasks.doubled:term
scalar = lab_tasks.doubled:scalar
[varband.rewards]
concise = lab_tasks.brevity:concise
endless = lab_tasks.brevity:endless
"""
#: Hours of a clock: 13 is 1. What cannot be judged raises, and what hangs is stopped.
CLOCK = """
def read(text):
    if text == "hang":
        while True:
            pass
    if text == "fall":
        raise ValueError("no hour")
    return [text] if text.isdigit() else []

def same(answer, gold):
    return int(answer) % 12 == int(gold) % 12
"""
#: One that reads nothing, and one that compares only what is spelt alike.
RAISING = """
def read(text):
    return [text.hour]
"""
UNEQUAL = """
def read(text):
    return [text]

def same(answer, gold):
    if answer != gold:
        raise KeyError(answer)
    return True
"""
REVERSED = """
fields = {"answer_form": "tag", "trace_tag": "work", "stop": ["!"]}

def prompt(problem):
    return " ".join(reversed(problem.split())) + " <work>...</work> <answer>...</answer>"

def parse(completion):
    head, found, rest = completion.partition("=>")
    return (head.strip(), rest.strip(" !")) if found else (None, None)

def solved(answer, trace):
    return f"{trace} => {answer}!"
"""
MIDDLE = """
def from_middle(group, context):
    return group.rewards_G - (group.rewards_G.max() + group.rewards_G.min()) / 2, {}
"""

#: Of twice REINFORCE's gradient: once declared, once not; and one that returns no term a token.
DOUBLED = """
from tasks.domain.grpo.losses import Loss

def term(tokens, config):
    return -2 * tokens.logprobs_T * tokens.advantages_T

def scalar(tokens, config):
    return -(tokens.logprobs_T * tokens.advantages_T).sum()

doubled = Loss(term, "token_mean", reads=("clip_low",), reinforces=False)
"""
BREVITY = """
def concise(problem, completion, answer, verdict, num_tokens, finish):
    return 1 / (1 + num_tokens) if verdict == "correct" else 0.0

def endless(problem, completion, answer, verdict, num_tokens, finish):
    return len(completion) / 0.0
"""

#: Parts that do not do what they should.
FAULTY = """
from types import SimpleNamespace

fields = {"answer_form": "tag", "stop": ["</answer>"]}

def fails(*_):
    raise ValueError("no\\nhour")

def asks(problem):
    return problem + " <answer>7</answer>"

fixed = SimpleNamespace(fields=fields, prompt=lambda problem: "<answer>7</answer>")
unread = SimpleNamespace(fields=fields, prompt=asks, parse=fails, solved=lambda answer, trace: answer)
neither = SimpleNamespace(read=str.split, same=lambda *_: "no")
nothing = SimpleNamespace(read=lambda text: None, same=str.__eq__)

def endless(group, context):
    return group.rewards_G * float("nan"), {}
"""


def install(at: Path, version: str = "1.0") -> Path:
    """The folder to have on the path, with this version of the distribution and no other."""
    target = at / f"installed-{version}"
    (target / "lab_tasks").mkdir(parents=True)
    modules = {
        "clock": CLOCK,
        "raising": RAISING,
        "unequal": UNEQUAL,
        "reversed": REVERSED,
        "middle": MIDDLE,
        "doubled": DOUBLED,
        "brevity": BREVITY,
        "faulty": FAULTY,
    }
    for name, text in {"__init__": "", **modules}.items():
        (target / "lab_tasks" / f"{name}.py").write_text(text)
    (about := target / f"lab_tasks-{version}.dist-info").mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lab-tasks\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return target
