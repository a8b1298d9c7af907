"""Read rollouts from the files of other tools.

| tool | file |
|---|---|
| any | JSONL, CSV or Parquet with the columns of `FIELDS`, a rollout or a problem a row |
| TRL | `completions_*.parquet` (`log_completions`) |
| lm-eval | `samples_*.jsonl` (`--log_samples`) |
| inspect | `*.eval` |
| verifiers, prime-rl | `traces.jsonl`; `results.jsonl` of earlier versions |
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

from storage.errors import UserError
from tasks.engines.problem_files import records_of

Record = Mapping[str, Any]
#: The names that a file may have for each field. The first name that the file has is used.
FIELDS = {
    "problem": ("problem", "question"),
    "prompt": ("prompt", "input", "query", "messages"),
    "gold": ("gold", "answer", "target", "solution"),
    "key": ("source_id", "problem_id", "doc_id", "id", "uid", "example_id"),
    "completion": (
        *("completion", "response", "output", "generation", "text"),
        *("completions", "responses", "outputs", "generations", "messages"),
    ),
    "correct": ("correct", "is_correct", "score", "reward", "acc", "exact_match"),
    "finish": ("finish", "finish_reason", "stop_reason"),
    "num_tokens": ("num_tokens", "completion_tokens", "output_tokens"),
    "arm": ("arm", "model"),
    "token_ids": ("token_ids",),
    "logprobs": ("logprobs",),
}
#: Fields that may be lists in a row with several completions, with one value for each completion.
OF_ROLLOUTS = ("correct", "finish", "num_tokens", "token_ids", "logprobs")
#: Endings of the files that are read in a folder.
ENDINGS = (".eval", ".jsonl", ".csv", ".parquet")
CUT = ("length", "max_tokens", "model_length")
FORMATS = (
    f"Formats: JSONL, CSV or Parquet with a column {', '.join(FIELDS['completion'])}, samples of lm-eval, traces of"
    " verifiers, completions of TRL, .eval files of inspect"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """One rollout of another tool. prompt: as the model got it, with the problem. problem, gold, key: of the problem,
    if the file has them. finish, num_tokens: may be None (unknown). correct: the other tool's verdict."""

    completion: str
    prompt: str = ""
    problem: str | None = None
    gold: str | None = None
    key: str | None = None
    finish: Literal["stop", "length"] | None = None
    num_tokens: int | None = None
    correct: bool | None = None
    arm: str | None = None
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()


def files_of(path: Path) -> list[Path]:
    """Return a file, or the files in a folder that may contain rollouts. Raise UserError if a folder has none."""
    if not path.is_dir():
        return [path]
    if not (found := sorted(file for file in path.rglob("*") if file.suffix in ENDINGS)):
        raise UserError(f"{path} has no file that ends in {', '.join(ENDINGS)}")
    return found


def read_rollouts(path: Path) -> tuple[str, list[Foreign]]:
    """Return the name of the tool, and the rollouts in the order of the file.

    Raise UserError for a file that cannot be read, has an unknown form, or has no completions.
    """
    try:
        return _read(path)
    except (LookupError, TypeError, AttributeError, ValueError, OSError, BadZipFile) as error:
        why = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} is damaged, or has a version that Varband cannot read ({why})") from None


def _read(path: Path) -> tuple[str, list[Foreign]]:
    if path.suffix == ".eval":
        return "inspect", list(_inspect(path))
    try:
        records = [record for _, record in records_of(path, "a rollout")]
    except UserError as error:
        raise UserError(f"{error}. {FORMATS}") from None
    first: Record = records[0] if records else {}
    if "traces" in first:
        return "verifiers", [one for record in records for one in _verifiers(record)]
    if "doc" in first and "resps" in first:
        return "lm-eval", list(_lm_eval(path, records))
    if not any(name in record for record in records for name in FIELDS["completion"]):
        raise UserError(f"{path} has no completions (found: {', '.join(first) or 'nothing'}). {FORMATS}")
    tool = "TRL" if {"prompt", "completion", "step"} <= {*first} else "file"
    return tool, [one for record in records for one in _row(record)]


def _row(record: Record) -> Iterator[Foreign]:
    """Yield the rollouts of one row: of a file with columns, or of TRL."""
    there = {name: value for name, value in record.items() if value is not None}
    found = {ours: next((there[name] for name in names if name in there), None) for ours, names in FIELDS.items()}
    named = {name: _text(found[name]) for name in ("problem", "gold", "key", "arm") if found[name] is not None}
    prompt, problem = _prompt_and_problem(found["prompt"])
    texts = _completions(found["completion"])
    cells = {name: found[name] if name == "finish" else _cell(found[name]) for name in OF_ROLLOUTS}
    for n, text in enumerate(texts):
        of = {name: _nth(value, n, len(texts)) for name, value in cells.items()}
        ids, number = _numbers(of["token_ids"]), of["num_tokens"]
        yield Foreign(
            completion=text,
            prompt=prompt,
            finish=_finish(of["finish"]),
            num_tokens=int(number) if isinstance(number, int | float) and math.isfinite(number) else len(ids) or None,
            correct=_right(of["correct"]),
            token_ids=ids,
            logprobs=_numbers(of["logprobs"]),
            **{"problem": problem} | named,
        )


def _completions(value: Any) -> list[str]:
    """Return the completions in a cell: texts, the model's last messages, or responses of OpenAI's protocol.

    >>> _completions([{"role": "assistant", "content": "3"}, {"role": "user", "content": "No."}])
    ['3']
    >>> _completions(["3", [{"role": "assistant", "content": "4"}]]), _completions({"choices": [{"text": "5"}]})
    (['3', '4'], ['5'])
    """
    match value:
        case {"choices": choices}:
            return _completions(choices)
        case {"message": message}:
            return _completions(message)
        case [{"role": _}, *_]:
            sampled = [message for message in value if message["role"] == "assistant"]
            return [_text(sampled[-1:])]
        case [_, *_]:
            return [text for one in value for text in _completions(one)]
        case _:
            return [_text([value])]


def _prompt_and_problem(value: Any) -> tuple[str, str | None]:
    """Return a prompt, and the last message of the user if the prompt is a conversation (else None)."""
    match value:
        case [{"role": _}, *_]:
            last = max((n for n, message in enumerate(value) if message["role"] == "assistant"), default=len(value))
            before = value[:last]
            users = [message for message in before if message["role"] == "user"]
            return _text(before), _text(users[-1:]) or None
        case _:
            return _text(value), None


def _nth(value: Any, n: int, of: int) -> Any:
    """Return the part of a cell that belongs to completion `n` of several."""
    each = of > 1 and isinstance(value, Sequence) and not isinstance(value, str)
    return (value[n] if len(value) == of else None) if each else value


def _cell(value: Any) -> Any:
    """Return the number, truth value or list that a CSV cell spells, None if empty, or the value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value.lower())
    except ValueError:
        return None


def _lm_eval(path: Path, records: Sequence[Record]) -> Iterator[Foreign]:
    """Yield the samples of lm-eval. A file repeats each document for each filter, always with the same responses."""
    seen = set[Any]()
    for record in records:
        if (key := record["doc_id"]) in seen:
            continue
        seen.add(key)
        doc, first_prompt = record["doc"], next(iter(record.get("arguments", {}).values()), {})
        texts = [
            text for response in record["resps"] for text in ([response] if isinstance(response, str) else response)
        ]
        if not all(isinstance(text, str) for text in texts):
            raise UserError(f"{path} has log-likelihoods of choices, not completions; import generate_until tasks")
        gold = next((doc[name] for name in FIELDS["gold"][:2] if name in doc), record["target"])
        score = _right(next((record[name] for name in record.get("metrics", ()) if name in record), None))
        for text in texts:
            yield Foreign(
                completion=_text(text),
                prompt=_text(first_prompt.get("arg_0") if isinstance(first_prompt, Mapping) else first_prompt[0]),
                problem=next((doc[name] for name in FIELDS["problem"] if name in doc), None),
                gold=str(gold),
                key=str(doc.get("source_id", key)),
                correct=score if len(texts) == 1 else None,
            )


def _inspect(path: Path) -> Iterator[Foreign]:
    try:
        from inspect_ai.log import read_eval_log  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            f"{path}: reading it needs inspect_ai, which is not installed; install varband[inspect]"
        ) from None
    log = read_eval_log(str(path))
    for sample in log.samples or []:
        if not sample.output.choices:
            continue
        usage, scores = sample.output.usage, [score.value for score in (sample.scores or {}).values()]
        target = sample.target if isinstance(sample.target, str) else sample.target[0]
        text = isinstance(sample.input, str)
        prompt, problem = _prompt_and_problem(
            sample.input if text else [message.model_dump() for message in sample.input]
        )
        yield Foreign(
            completion=_text(sample.output.completion),
            prompt=prompt,
            problem=problem or prompt,
            gold=target,
            key=str(sample.id),
            finish=_finish(sample.output.stop_reason),
            num_tokens=usage.output_tokens if usage else None,
            correct=_right(*({"C": True, "I": False}.get(str(score), score) for score in scores)),
            arm=log.eval.model,
        )


def _verifiers(episode: Record) -> Iterator[Foreign]:
    """Yield the model's last message and its prompt, by trace. Token counts are those of the whole rollout."""
    for trace in episode["traces"]:
        sampled = [node for node in trace["nodes"] if node.get("sampled")]
        if not sampled:
            continue
        last, data, calls = sampled[-1], trace["task"]["data"], trace.get("calls", [])
        rewards = [one["score"] for one in trace.get("rewards", {}).values() if one]
        gold = next((data[name] for name in FIELDS["gold"] if name in data), None)
        counted = sum(len(node["token_ids"]) for node in sampled)
        yield Foreign(
            completion=_text([last["message"]]),
            prompt=_text([node["message"] for node in trace["nodes"] if not node.get("sampled")]),
            problem=next((str(data[name]) for name in FIELDS["problem"] if name in data), None),
            gold=None if gold is None else str(gold),
            key=str(data["idx"]) if "idx" in data else None,
            finish=_finish(calls[-1].get("finish_reason") if calls else None),
            num_tokens=counted
            or sum((call.get("usage") or {}).get("completion_tokens") or 0 for call in calls)
            or None,
            correct=_right(*rewards),
            arm=trace["agent"]["config"].get("model"),
            token_ids=last["token_ids"] if len(sampled) == 1 else (),
            logprobs=last["logprobs"] if len(sampled) == 1 else (),
        )


def _numbers(value: Any) -> Sequence[Any]:
    """Return a list of numbers unchanged, or nothing if it has gaps."""
    return value if isinstance(value, list) and all(isinstance(one, int | float) for one in value) else ()


def _text(value: Any) -> str:
    """Return a text, or the contents of messages. A lone UTF-16 surrogate, which cannot be stored, becomes `?`."""
    if isinstance(value, Mapping):
        return _text(next((value[name] for name in ("content", "text") if name in value), None))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n".join(map(_text, value))
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _finish(value: Any) -> Literal["stop", "length"] | None:
    return None if value is None else "length" if str(value).lower() in CUT else "stop"


def _right(*values: Any) -> bool | None:
    """Return the first of the values that is a verdict: true, false, 1 or 0. Return None if there is none.

    >>> _right(0.5, 1.0), _right("C", math.nan)
    (True, None)
    """
    return next((bool(value) for value in values if isinstance(value, int | float) and value in (0, 1)), None)
