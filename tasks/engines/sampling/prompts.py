"""Prompts as token ids, equal for all engines, and the check that a prompt contains no problem of the pool."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from storage.errors import UserError
from tasks.domain.scaffolds import Prompt, Scaffold
from tasks.engines.hardware import quiet_libraries
from tasks.engines.model_files import TODAY
from tasks.engines.protocols import Generator, Request
from tasks.engines.sampling.sampler import RolloutRequest

#: Files that name the end tokens, in the order in which transformers and vLLM read them.
CONFIGS = ("generation_config.json", "config.json")


def vocabulary_of(tokenizer: Any, model: Path) -> int:
    """Return one more than the largest token id that a model can sample. A head may be wider than its tokenizer."""
    config = _config(model / "config.json")
    widths = (part.get("vocab_size") for part in (config, config.get("text_config", {})))
    return max(len(tokenizer), *(width for width in widths if isinstance(width, int)), 0)


def encode_prompt(tokenizer: Any, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
    """Return the token ids of a problem's prompt. A chat prompt has its messages (or one user message) and the
    template's generation prompt. A prompt without chat has the tokenizer's BOS exactly once, and no EOS at its end.
    begun: start of the completion."""
    text = scaffold.prompt(problem)
    if scaffold.chat or not isinstance(text, str):
        text = chat_text(tokenizer, text, enable_thinking=scaffold.enable_thinking)
    ids = tokenizer(text + begun, add_special_tokens=False)["input_ids"]
    if scaffold.chat:
        return tuple(ids)
    framed = tokenizer(text + begun)["input_ids"]
    for before in (framed[:i] for i in range(len(framed) - len(ids) + 1) if framed[i : i + len(ids)] == ids):
        return tuple(ids if ids[: len(before)] == before else [*before, *ids])
    return tuple(framed)


def chat_text(tokenizer: Any, prompt: Prompt, *, enable_thinking: bool) -> str:
    """Return messages in the chat template, or a text as one user message. A template that inserts the current date
    gets TODAY. Raise UserError for a model without a chat template."""
    if tokenizer.chat_template is None:
        raise UserError(
            f"{tokenizer.name_or_path}: the model folder has no chat template, which this arm needs;"
            " use a scaffold without chat, or a model with a template"
        )
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=enable_thinking,
        strftime_now=TODAY.strftime,
    )


def default_system_prompt(tokenizer: Any) -> bool:
    """Return whether a chat template adds a system prompt of its own if the messages have none."""
    user = {"role": "user", "content": "?"}
    alone, replaced = (
        chat_text(tokenizer, [*system, user], enable_thinking=False)
        for system in ([], [{"role": "system", "content": ""}])
    )
    return len(alone) > len(replaced)


def opens_trace(model: Path, scaffold: Scaffold) -> bool | None:
    """Return whether this model's chat template ends the prompt with the opening tag of the scaffold's trace; None if
    the scaffold has no chat or no tag, or if the model has no tokenizer or template."""
    if not scaffold.chat or scaffold.trace_tag is None or (tokenizer := loaded_tokenizer(model)) is None:
        return None
    if tokenizer.chat_template is None:
        return None
    text = chat_text(tokenizer, scaffold.prompt("?"), enable_thinking=scaffold.enable_thinking)
    return text.rstrip().endswith(f"<{scaffold.trace_tag}>")


class PromptEncoder:
    """The part of an engine that encodes prompts. All engines share it."""

    _tokenizer: Any

    def encode(self, scaffold: Scaffold, problem: str, begun: str = "") -> tuple[int, ...]:
        """Implement Generator.encode."""
        return encode_prompt(self._tokenizer, scaffold, problem, begun)


class EndTokens:
    """The tokens that end a completion: the tokenizer's EOS, and those in the model's generation_config.json."""

    def __init__(self, tokenizer: Any, model: Path) -> None:
        file = next((model / name for name in CONFIGS if (model / name).is_file()), model / CONFIGS[0])
        ends = _config(file).get("eos_token_id")
        self._tokenizer = tokenizer
        self.ids = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}

    def text_of(self, token_ids: Sequence[int], stop: Sequence[str]) -> str:
        """Return the text of a completion up to its first stop string (even within a token) or its end token."""
        kept = token_ids[:-1] if token_ids[-1] in self.ids else token_ids
        text = self._tokenizer.decode(kept, skip_special_tokens=False)
        return text[: min((i + len(s) for s in stop if (i := text.find(s)) >= 0), default=None)]

    def without(self, text: str, token_ids: Sequence[int]) -> str:
        """Return the text of a completion without its end token."""
        ended = bool(token_ids) and token_ids[-1] in self.ids
        return text.removesuffix(self._tokenizer.decode([token_ids[-1]])) if ended else text


def _config(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return {}


def loaded_tokenizer(model: Path) -> Any:
    """Return the tokenizer of a model folder; None if it cannot be loaded, which the engine will report. If there is a
    tokenizer.json, avoid AutoTokenizer, which imports torch and takes seconds."""
    quiet_libraries()
    import transformers

    whole = (model / "tokenizer.json").is_file()
    try:
        return getattr(transformers, "PreTrainedTokenizerFast" if whole else "AutoTokenizer").from_pretrained(
            model, trust_remote_code=False
        )
    except (OSError, ValueError):
        return None


#: Number of complete prompts that are encoded to find the longest one.
_CANDIDATES = 16


def longest_prompt(tokenizer: Any, scaffold: Scaffold, problems: Sequence[str]) -> tuple[int, int, float]:
    """Return (index, tokens) of the longest prompt, and the mean tokens of all prompts. Only the longest problems are
    encoded inside their prompts, because a template adds about the same to each, unless the scaffold is a program."""
    alone = [len(ids) for ids in tokenizer(list(problems), add_special_tokens=False, verbose=False)["input_ids"]]
    by_length = sorted(range(len(problems)), key=lambda place: -alone[place])
    tried = by_length if scaffold.code else by_length[:_CANDIDATES]
    tokens = {place: len(encode_prompt(tokenizer, scaffold, problems[place])) for place in tried}
    place = max(tokens, key=lambda one: tokens[one])
    added = sum(tokens[one] - alone[one] for one in tokens) / len(tokens)
    return place, tokens[place], sum(alone) / len(alone) + added


def check_lengths(requests: Sequence[Request], max_model_len: int) -> None:
    """Raise UserError if a prompt leaves no room for its completion."""
    for request in requests:
        if why := unfitting(len(request.prompt_ids), request.decoding.max_tokens, max_model_len):
            raise UserError(f"{why}: raise the profile's max_model_len or lower max_tokens")


def prompt_length(request: RolloutRequest, generator: Generator) -> int:
    """Return the tokens of a request's prompt, with the start of its completion."""
    return len(generator.encode(request.policy.scaffold, request.problem, request.begun))


def unfitting(length: int, max_tokens: int, context: int) -> str:
    """Return why a prompt cannot be completed; empty if it can."""
    if length + max_tokens <= context:
        return ""
    return f"a prompt of {length} tokens and max_tokens={max_tokens} do not fit the context of {context}"


#: A problem is searched in the whole prompt if it has this many characters. Shorter ones, such as 1+1, match by chance.
LOOKED_FOR = 12
#: Delimiters of LaTeX mathematics, and characters without a width.
UNSEEN = re.compile(r"\\?\$|\\[()\[\]]|[\u00ad\u200b-\u200d\u2060\ufeff]")
#: Signs that may end a problem, without `!`, which may be a factorial.
ENDS = " .:?;…。．？！：；؟۔।"
_OPERATOR = r"(?:[-+*/^×·÷−]|\\(?:times|cdot|div)\b)"
#: No text may follow that would make it a longer problem: a word, a number, or an operator with its operand.
_ENDED = rf"(?![^\W_]|[.,][0-9]|[%!]|_[0-9{{]| ?\([0-9])(?!(?: {_OPERATOR} |{_OPERATOR})(?:[0-9({{\\]|[a-z](?![a-z])))"


def refuse_leaked_problems(scaffold: Scaffold, problems: Iterable[str]) -> None:
    """Raise UserError if the scaffold's own prompt contains a problem, in an example or in its text, because the prompt
    could then show its gold. Spaces, capitals and LaTeX delimiters make no difference."""
    text = _plain(scaffold.prompt_text(""))
    examples = {_plain(one.problem).rstrip(ENDS) for one in scaffold.examples}
    for problem in dict.fromkeys(problems):
        plain = _plain(problem)
        bare = plain.rstrip(ENDS)
        if bare in examples or (bare and len(plain) >= LOOKED_FOR and occurs_in(bare, text)):
            raise UserError(
                f"scaffold {scaffold.name}: its prompt contains {problem[:60]!r}, a problem of the pool, and may give"
                " away its gold; use another example, or leave the problem out of the pool"
            )


def _plain(text: str) -> str:
    """Return a text with normalised spaces, in lower case and without LaTeX delimiters.

    >>> _plain(" What is\\n$1\u200b + 1$? ")
    'what is 1 + 1?'
    """
    return " ".join(UNSEEN.sub("", text).split()).casefold()


def occurs_in(bare: str, text: str) -> bool:
    """Return whether a text contains the whole problem, and not only inside a longer expression.

    >>> occurs_in("5 + 12 =", "5 + 12 = 17"), occurs_in("5 + 12 =", "2 * 5 + 12 = 22"), occurs_in("1 + 1", "1 + 1 + 1")
    (True, False, False)
    """
    if bare not in text:  # so that no pattern is compiled for thousands of problems
        return False
    led_to = r"(?<![.,])(?<![-+*/^×·÷−] )" if bare[0].isdigit() or bare[0] in "(\\" else ""
    return re.search(rf"(?<![^\W_]){led_to}{re.escape(bare)}{_ENDED}", text) is not None
