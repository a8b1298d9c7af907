"""Scaffolds and arms. A scaffold is the prompt around a problem, and the tags of trace and answer in a completion.

A scaffold turns a problem into a prompt, and a completion into a trace and a final-answer region. A scaffold never
grades; the grader reads only the answer region.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic.dataclasses import dataclass

from storage.artifacts.fingerprint import Ruled, fingerprint
from storage.errors import UserError
from tasks.domain.grading.texts import answer_blocks, before_boxes, boxed, final_answer, has_content, visible
from tasks.domain.plugins import call_plugin, plugged
from tasks.domain.ranges import Checked, Name, OrNone

#: Fields that affect only parsing. A change of any other field changes what is sampled.
READING = ("name", "trace_tag", "answer_form", "trace_opened", "answer_kind")
#: The answer kind of the grader of mathematics; the others are in `tasks.domain.grading.kinds`.
MATH = "math"
AnswerForm = Literal["tag", "boxed", "final"]
#: The place of the problem's text in a prompt.
PROBLEM = "{problem}"
#: A prompt for an engine: a text, or the messages of a chat in the form of transformers' chat templates.
Prompt = str | list[dict[str, str]]
#: `pairs`: the form in the table of Scaffold.pairs; `published`: the form that the published study rewarded.
TagRule = Literal["pairs", "published"]


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed completion. trace: the reasoning; None if the scaffold's tags are missing or out of order. A trace that
    is never closed is reasoning too. region: the only text that may be graded; None if the completion has no answer.
    tag_valid: whether the completion has the scaffold's form, by the chosen rule."""

    trace: str | None
    region: str | None
    tag_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(Checked):
    """A solved problem in the prompt (few-shot)."""

    problem: str
    """The problem."""
    trace: str
    """Its reasoning."""
    answer: str
    """Its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Checked):
    """One message of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    """Role of the speaker."""
    content: str
    """Its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold(Ruled, Checked):
    """A prompt, stop strings, tags and a parser."""

    name: Name
    """Name of the scaffold; its table is `[scaffolds.NAME]`."""
    template: str
    """Prompt, with `{problem}` once. With `chat` it is one user message."""
    trace_tag: Annotated[str | None, OrNone]
    """Tag around the reasoning; `none` if the reasoning is the text before the answer."""
    answer_form: AnswerForm
    r"""`tag`: inside `<answer>`. `boxed`: in `\boxed{}` after the reasoning. `final`: in
    `\boxed{}`, or after `####`, "answer is" or "answer:", as in imported rollouts."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion when they are sampled."""
    chat: bool = False
    """Put the prompt into the model's chat template."""
    enable_thinking: bool = False
    """Passed on to the chat template."""
    trace_opened: bool = False
    """The prompt already opens the reasoning tag, so that a completion only closes it."""
    examples: tuple[Example, ...] = ()
    """Solved problems before the problem, written in the scaffold's own form."""
    answer_kind: str = MATH
    """How answers are parsed and compared: `math`, `integer`, `multiple_choice`, `exact_text`, or a plug-in."""
    code: str = ""
    """Plug-in that writes the prompt or parses completions."""
    system: Annotated[str | None, OrNone] = None
    """System message of a chat. `none` keeps the chat template's default; an empty text replaces it."""
    messages: tuple[Message, ...] = ()
    """The other messages of a chat, in place of the template, with `{problem}` once."""

    @property
    def pairs(self) -> tuple[str, ...]:
        """Return the pairs of tags of a well-formed completion. Each occurs once, in this order, and is not empty.

        | scaffold   | pairs                     | trace                        | answer                         |
        |------------|---------------------------|------------------------------|--------------------------------|
        | panel      | mutipersonaDebate, answer | in its pair                  | in its pair, the last thing    |
        | thinking   | think                     | in its pair                  | `\\boxed{…}` after the pair    |
        | no_panel   | answer                    | text before the pair         | in its pair, the last thing    |
        | think_tags | think, answer             | in its pair                  | in its pair, the last thing    |
        """
        return (*((self.trace_tag,) if self.trace_tag else ()), *(("answer",) if self.answer_form == "tag" else ()))

    def versions(self) -> Mapping[str, int | str]:
        """Return the versions of the parsing rules, for fingerprints. Older rules found no trace before a box, and read
        a trace that is not closed as an answer."""
        before_box = self.trace_tag is None and self.answer_form == "boxed"
        return {"trace": 2} if (before_box or self.trace_opened) and not self.code else {}

    @property
    def region_form(self) -> AnswerForm:
        """Return how the answer region is parsed: `boxed`, or `tag` for any text."""
        return "boxed" if self.answer_form == "boxed" else "tag"

    @property
    def ends_opened(self) -> bool:
        """Return whether the template itself ends with the opening tag of the trace."""
        return self.trace_tag is not None and self.template.rstrip().endswith(f"<{self.trace_tag}>")

    @property
    def has_steps(self) -> bool:
        """Return whether the scaffold marks the reasoning, which searches that sample step by step need."""
        return self.trace_tag is not None

    @property
    def digest(self) -> str:
        return fingerprint(self)

    @property
    def reading(self) -> str:
        """Return a hash of the fields that affect parsing and grading. After a change of these fields, stored rollouts
        are parsed again, and nothing is sampled."""
        fields = {name: getattr(self, name) for name in READING if name != "name"} | dict(self.versions())
        return fingerprint({name: value for name, value in fields.items() if (name, value) != ("answer_kind", MATH)})

    def prompt(self, problem: str) -> Prompt:
        """Return the prompt: a text, or messages if the scaffold has a system message or messages of its own.

        >>> dataclasses.replace(THINKING, system="Be brief.", template="{problem}").prompt("1+1?")
        [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '1+1?'}]
        """
        if self.system is None and not self.messages:
            return self._user_text(problem)
        system = [] if self.system is None else [Message(role="system", content=self.system)]
        user = [] if self.messages else [Message(role="user", content=self._user_text(PROBLEM))]
        messages = (*system, *self.messages, *user)
        return [{"role": m.role, "content": m.content.replace(PROBLEM, problem)} for m in messages]

    def prompt_text(self, problem: str) -> str:
        """Return the texts of a prompt, without the roles of its messages."""
        prompt = self.prompt(problem)
        return prompt if isinstance(prompt, str) else "\n\n".join(message["content"] for message in prompt)

    def _user_text(self, problem: str) -> str:
        opened = f"<{self.trace_tag}>" if self.ends_opened else ""
        solved = [self.answer_in_form(e.answer, e.trace).removeprefix(opened) for e in self.examples]
        texts = [self._prompt_for(e.problem) + text for e, text in zip(self.examples, solved, strict=True)]
        return "\n\n".join([*texts, self._prompt_for(problem)])

    def _prompt_for(self, problem: str) -> str:
        written = self._own("prompt")
        return written(problem) if written else self.template.replace(PROBLEM, problem)

    def answer_in_form(self, answer: str, trace: str = "hence") -> str:
        """Return a well-formed completion with this answer. Checks of golds use it.

        >>> PANEL.answer_in_form("7", "Ann: 3+4=7.")
        '<mutipersonaDebate>Ann: 3+4=7.</mutipersonaDebate> <answer>7</answer>'
        """
        if solved := self._own("solved"):
            return solved(answer, trace)
        reasoning = f"<{self.trace_tag}>{trace}</{self.trace_tag}>" if self.trace_tag else trace
        final = rf"\boxed{{{answer}}}" if self.answer_form == "boxed" else f"<answer>{answer}</answer>"
        return f"{reasoning} {final}"

    def parse(self, completion: str, tag_rule: TagRule = "pairs") -> Parsed:
        r"""Return trace, answer region and tag validity of one completion.

        >>> PANEL.parse("<mutipersonaDebate>a</mutipersonaDebate> <answer>7</answer>")
        Parsed(trace='a', region='7', tag_valid=True)
        >>> THINKING.parse(r"<think>is it 8?</think> It is \boxed{7}.").region
        ' It is \\boxed{7}.'
        >>> PANEL.parse("<mutipersonaDebate>the answer is 7")
        Parsed(trace=None, region=None, tag_valid=False)
        """
        if tag_rule == "pairs":
            completion = visible(completion)
        if read := self._own("parse"):
            trace, region = read(completion)
            return Parsed(trace, region, has_content(trace or "") and has_content(region or ""))
        trace, rest = self._split_trace(completion)
        opened = self.trace_tag and (self.trace_opened or f"<{self.trace_tag}>" in completion)
        if opened and f"</{self.trace_tag}>" not in completion:
            return Parsed(None, None, False)
        if self.answer_form == "final":
            before, region = final_answer(rest)
            trace = (before.strip() or None) if self.trace_tag is None else trace
            return Parsed(trace, region, region is not None and (self.trace_tag is None or trace is not None))
        if self.answer_form == "boxed":
            trace = (before_boxes(rest).strip() or None) if self.trace_tag is None else trace
            published = trace is not None and _counts_once(completion, self.trace_tag)
            return Parsed(trace, rest, published and (tag_rule == "published" or self._sound(completion, trace, rest)))
        blocks = answer_blocks(rest)
        closed = rest.rstrip().endswith("</answer>") and 0 <= rest.find("<answer>") < rest.rfind("</answer>")
        if self.trace_tag is None and "<answer>" in rest:
            trace = rest.split("<answer>", 1)[0].strip() or None
        region = "\n".join(f"<answer>{b}</answer>" for b in blocks) if len(blocks) > 1 else (blocks or [None])[0]
        between = rest.split("<answer>", 1)[0] if self.trace_tag else ""
        alone = closed and len(blocks) == 1 and not between.strip()
        published = trace is not None and alone and _counts_once(completion, self.trace_tag)
        return Parsed(trace, region, published and (tag_rule == "published" or self._sound(completion, trace, rest)))

    def _own(self, function: str) -> Callable[..., Any] | None:
        """Return the function `prompt`, `parse` or `solved` of the plug-in; None if there is none. Raise UserError if
        the plug-in is missing or has another version, and in a call if it fails."""
        if not self.code or not hasattr(plugged("varband.scaffolds", self.code), function):
            return None

        def call(*given: str) -> Any:
            found: Any = call_plugin("varband.scaffolds", self.code, function, *given)
            parts = found if function == "parse" else [found]
            sound = isinstance(parts, tuple | list) and len(parts) == (2 if function == "parse" else 1)
            if not sound or not all(isinstance(one, str) or (one is None and function == "parse") for one in parts):
                wanted = "not trace and answer, each a text or null" if function == "parse" else "which is no text"
                raise UserError(f"scaffold {self.code}: `{function}` returned {found!r:.60}, {wanted}")
            return found

        return call

    def _sound(self, completion: str, trace: str | None, rest: str) -> bool:
        """Return whether each pair of tags occurs once and in order, and neither trace nor answer is empty."""
        for tag in self.pairs:
            if self.trace_opened and tag == self.trace_tag:
                in_order = f"<{tag}>" not in completion and completion.count(f"</{tag}>") == 1
            else:
                once = completion.count(f"<{tag}>") == completion.count(f"</{tag}>") == 1
                in_order = once and completion.index(f"<{tag}>") < completion.index(f"</{tag}>")
            if not in_order:
                return False
        boxes, _, cut = boxed(rest)
        answers = answer_blocks(rest, unclosed=False) if self.answer_form == "tag" else [] if cut else boxes
        return has_content(trace or "") and any(has_content(answer) for answer in answers)

    def _split_trace(self, completion: str) -> tuple[str | None, str]:
        """Return (trace, the text after it). The opening tag may be in the prompt."""
        if self.trace_tag is None:
            return None, completion
        head, closing, rest = completion.rpartition(f"</{self.trace_tag}>")
        if not closing:
            return None, completion
        opening = f"<{self.trace_tag}>"
        if opening in head:
            return head.split(opening, 1)[1].strip(), rest
        return (head.strip(), rest) if self.chat or self.trace_opened else (None, rest)


def _counts_once(completion: str, tag: str | None) -> bool:
    return tag is None or (completion.count(f"</{tag}>") == 1 and completion.count(f"<{tag}>") <= 1)


PANEL = Scaffold(
    name="panel",
    template=(
        "A conversation between User and Multi-Persona Panel of Experts. The user asks a question, and the"
        " Multi-Persona Panel of Experts solves it. The Multi-Persona Panel of Experts first deliberates and"
        " debates the reasoning process with each other and then provides the user with the answer. The"
        " deliberation process and answer are enclosed within <mutipersonaDebate>...</mutipersonaDebate> and"
        " <answer>...</answer> tags, respectively, i.e., <mutipersonaDebate> deliberation process here"
        " </mutipersonaDebate> <answer>answer here </answer>. User: {problem}. Assistant: "
    ),
    trace_tag="mutipersonaDebate",
    answer_form="tag",
    stop=("</answer>",),
)
THINKING = Scaffold(
    name="thinking",
    template="{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{}.",
    trace_tag="think",
    answer_form="boxed",
    chat=True,
    enable_thinking=True,
)
NO_PANEL = Scaffold(
    name="no_panel",
    template=(
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it step"
        " by step and then provides the user with the answer within <answer>...</answer> tags, i.e.,"
        " <answer>answer here </answer>. User: {problem}. Assistant: "
    ),
    trace_tag=None,
    answer_form="tag",
    stop=("</answer>",),
)
THINK_TAGS = Scaffold(
    name="think_tags",
    template=(
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The"
        " Assistant first thinks about the reasoning process in the mind and then provides the user with the"
        " answer. The reasoning process and answer are enclosed within <think>...</think> and"
        " <answer>...</answer> tags, respectively, i.e., <think> reasoning process here </think>"
        " <answer>answer here </answer>. User: {problem}. Assistant: "
    ),
    trace_tag="think",
    answer_form="tag",
    stop=("</answer>",),
)
#: Scaffolds with an answer but no trace, one for each form of answer regions, for checks of golds.
FORMS: tuple[AnswerForm, ...] = ("tag", "boxed")
BARE = {f: Scaffold(name=f, template="{problem}", trace_tag=None, answer_form=f) for f in FORMS}
#: The built-in scaffolds by name.
SCAFFOLDS = {s.name: s for s in (PANEL, THINKING, NO_PANEL, THINK_TAGS)}


# ---- arms: a scaffold with its base model and adapter. A new arm is one entry of ARMS; its prompt is a scaffold.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm of the experiment.

    - trained_as: the arm whose adapter this arm is evaluated with; its own name if the arm trains; None if the arm is
      screened and evaluated without training, such as a reference.
    - model: name of the base model; if empty, that of the arm whose adapter it has, else the study's model.
    - adapter: an imported adapter on that base model. The arm starts from this adapter, or is evaluated with it.
    """

    name: str
    scaffold: Scaffold
    trained_as: str | None
    model: str = ""
    adapter: str = ""

    @property
    def trains(self) -> bool:
        return self.trained_as == self.name

    @property
    def head(self) -> str:
        """Return the name of the arm whose adapter this arm is evaluated with. By default it is the arm itself."""
        return self.trained_as or self.name


ARMS = {
    a.name: a
    for a in (
        Arm(name="panel", scaffold=PANEL, trained_as="panel"),
        Arm(name="thinking", scaffold=THINKING, trained_as="thinking"),
        Arm(name="no_panel", scaffold=NO_PANEL, trained_as="panel"),
        Arm(name="think_tags", scaffold=THINK_TAGS, trained_as="think_tags"),
    )
}
