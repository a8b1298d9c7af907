"""Read rollouts from the files of other tools.

| tool | file |
|---|---|
| any | JSONL, CSV or Parquet with the columns of `FIELDS` |
| TRL | `completions_*.parquet` (`log_completions`) |
| lm-eval | `samples_*.jsonl` (`--log_samples`) |
| inspect | `*.eval` |
| verifiers, prime-rl | `traces.jsonl` |
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from storage.errors import UserError
from tasks.engines.problem_files import records_of

Record = Mapping[str, Any]
#: Our fields by the names that files give them, the first that is there.
FIELDS = {
    "problem": ("problem", "question"),
    "prompt": ("prompt", "input", "query"),
    "gold": ("gold", "answer", "target", "solution"),
    "key": ("source_id", "problem_id", "doc_id", "id", "uid"),
    "completion": ("completion", "response", "output", "generation", "text"),
    "correct": ("correct", "is_correct", "score", "reward", "acc", "exact_match"),
    "finish": ("finish", "finish_reason", "stop_reason"),
    "num_tokens": ("num_tokens", "completion_tokens", "output_tokens"),
    "arm": ("arm", "model"),
    "token_ids": ("token_ids",),
    "logprobs": ("logprobs",),
}
CUT = ("length", "max_tokens", "model_length")
FORMATS = (
    f"Formats: JSONL, CSV or Parquet with a column {' or '.join(FIELDS['completion'])}, samples of lm-eval, traces of"
    " verifiers, completions of TRL, .eval files of inspect"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """One rollout of another tool. prompt: as the model got it, including the problem; problem, gold, key: of the
    problem, if the file has them. num_tokens: None if unknown. correct: the other tool's verdict."""

    completion: str
    prompt: str = ""
    problem: str | None = None
    gold: str | None = None
    key: str | None = None
    finish: Literal["stop", "length"] = "stop"
    num_tokens: int | None = None
    correct: bool | None = None
    arm: str | None = None
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()


def read_rollouts(path: Path) -> tuple[str, list[Foreign]]:
    """Return the name of the tool, and the rollouts in the order of the file.

    Errors: UserError for a file that cannot be read, of an unknown form, or without completions.
    """
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
        return "lm-eval", list(_lm_eval(records))
    if not any(name in record for record in records for name in FIELDS["completion"]):
        raise UserError(f"{path}: holds no completions (found: {', '.join(first) or 'nothing'}). {FORMATS}")
    return ("TRL" if {"prompt", "completion", "step"} <= {*first} else "file"), [_row(record) for record in records]


def _row(record: Record) -> Foreign:
    """A rollout of a file with columns, or of TRL."""
    found = {ours: next((record[name] for name in names if name in record), None) for ours, names in FIELDS.items()}
    named = {name: _text(found[name]) for name in ("problem", "gold", "key", "arm") if found[name] is not None}
    found |= {name: _cell(found[name]) for name in ("num_tokens", "correct", "token_ids", "logprobs")}
    number = found["num_tokens"]
    return Foreign(
        completion=_text(found["completion"]),
        prompt=_text(found["prompt"]),
        finish="length" if found["finish"] in CUT else "stop",
        num_tokens=int(number) if isinstance(number, int | float) and math.isfinite(number) else None,
        correct=_right(found["correct"]),
        token_ids=found["token_ids"] or (),
        logprobs=found["logprobs"] or (),
        **named,
    )


def _cell(value: Any) -> Any:
    """Return the number, truth value or list that a cell of CSV spells (None if none), and other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value.lower())
    except ValueError:
        return None


def _lm_eval(records: Sequence[Record]) -> Iterator[Foreign]:
    """A document occurs once per filter, always with the same responses."""
    seen = set[Any]()
    for record in records:
        if (key := record["doc_id"]) in seen:
            continue
        seen.add(key)
        doc, first_prompt = record["doc"], next(iter(record.get("arguments", {}).values()), {})
        texts = [
            text for response in record["resps"] for text in ([response] if isinstance(response, str) else response)
        ]
        gold = next((doc[name] for name in ("gold", "answer") if name in doc), record["target"])
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
        raise UserError(f"{path}: is read by inspect_ai, which is not installed; install varband[inspect]") from None
    log = read_eval_log(str(path))
    for sample in log.samples or []:
        if not sample.output.choices:
            continue
        usage, verdicts = sample.output.usage, [score.value for score in (sample.scores or {}).values()]
        target = sample.target if isinstance(sample.target, str) else sample.target[0]
        question = _text(sample.input if isinstance(sample.input, str) else [m.model_dump() for m in sample.input])
        yield Foreign(
            completion=_text(sample.output.completion),
            prompt=question,
            problem=question,
            gold=target,
            key=str(sample.id),
            finish="length" if sample.output.stop_reason in CUT else "stop",
            num_tokens=usage.output_tokens if usage else None,
            correct={"C": True, "I": False}.get(str(verdicts[0]), _right(verdicts[0])) if verdicts else None,
            arm=log.eval.model,
        )


def _verifiers(episode: Record) -> Iterator[Foreign]:
    """Yield the last message of the model and its prompt, for each trace of an episode."""
    for trace in episode["traces"]:
        sampled = [node for node in trace["nodes"] if node.get("sampled")]
        if not sampled:
            continue
        last, data = sampled[-1], trace["task"]["data"]
        call = next(iter(trace.get("calls", [])[-1:]), {})
        rewards = [one["score"] for one in trace.get("rewards", {}).values() if one]
        gold = next((data[name] for name in FIELDS["gold"] if name in data), None)
        yield Foreign(
            completion=_text([last["message"]]),
            prompt=_text([node["message"] for node in trace["nodes"] if not node.get("sampled")]),
            problem=next((str(data[name]) for name in FIELDS["problem"] if name in data), None),
            gold=None if gold is None else str(gold),
            key=str(data["idx"]) if "idx" in data else None,
            finish="length" if call.get("finish_reason") in CUT else "stop",
            num_tokens=len(last["token_ids"]) or (call.get("usage") or {}).get("completion_tokens"),
            correct=_right(rewards[0]) if rewards else None,
            arm=trace["agent"]["config"].get("model"),
            token_ids=last["token_ids"],
            logprobs=last["logprobs"],
        )


def _text(value: Any) -> str:
    """Return a text, or the contents of messages. Half of a UTF-16 pair, which cannot be stored, becomes `?`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n".join(_text(one.get("content") if isinstance(one, Mapping) else one) for one in value)
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _right(value: Any) -> bool | None:
    """Return a verdict from true, false, 1 or 0; None for any value in between."""
    if isinstance(value, bool):
        return value
    return bool(value) if isinstance(value, int | float) and not math.isnan(value) and value in (0, 1) else None
