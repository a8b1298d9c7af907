"""What a server says, read with mistrust: an answer of the OpenAI completions protocol, or garbage that says so.

A proxy's page, an answer cut short and a choice without its tokens come with status 200 too. Nothing of them may become
a rollout, and asked again the server may answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import numpy as np
import orjson

from storage.errors import UserError
from tasks.engines.protocols import Completion, Finish, Request

#: vLLM writes this for a log-prob of minus infinity, which JSON cannot hold.
NO_LOGPROB = -9998.0
#: A log-prob may be above zero by rounding, not by more.
ROUNDING = 1e-3


class Garbled(ValueError):
    """What came is no answer; another try may bring one."""


def parsed(text: bytes) -> dict[str, Any]:
    """Errors: Garbled for what is no JSON object."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Garbled(f"no JSON ({error}): '{_start(text)}'") from None
    if not isinstance(found, dict):
        raise Garbled(f"no JSON object: '{_start(text)}'")
    return found


def model_of(text: bytes, url: str, names: Collection[str] | None, served: str = "") -> str:
    """Return the name under which a server lists the base model; its adapters name it as their parent, its other names
    its folder. names: of the study's model, any of which may stand in the list; None takes any model. served: the one
    name that is the model.

    Errors: UserError for another model or several, and for what is no such list, as any web page is.
    """
    try:
        listed = parsed(text).get("data")
        if isinstance(listed, list) and not listed:
            raise UserError(f"{url}: the server has no model; start it with the folder of the profile's base model")
        bases = [one for one in listed if not one.get("parent")]  # type: ignore[union-attr]
        roots = {str(one["id"]): str(one.get("root") or one["id"]) for one in bases}
        if not roots or not all(map(str.isprintable, roots)):
            raise TypeError
    except (Garbled, AttributeError, IndexError, TypeError, KeyError) as error:
        words = str(error) if isinstance(error, Garbled) else f"'{_start(text)}'"
        raise UserError(f"{url}: what it answers is no list of models, {words}; check the address") from None
    listed = ", ".join([*roots][:4])
    if served:
        if served in roots:
            return served
        raise UserError(f"{url}: hardware.served_model is '{served}', and the server has {listed}")
    if len(set(roots.values())) > 1:
        said = f"{url}: the server has {len(roots)} models ({listed}); "
        raise UserError(f"{said}give one with the profile's alone, or say which is it: hardware.served_model=NAME")
    for name, root in roots.items():
        if names is None or {_model_name(name), _model_name(root)} & {*map(_model_name, names)}:
            return name
    raise UserError(
        f"{url}: the server has {listed}, and the study's model is {' or '.join(names or ())}; serve that one, or, if"
        f" this name is that model, set hardware.served_model={next(iter(roots))}"
    )


def _model_name(text: str) -> str:
    """Return the last part of a folder or an id on the hub, without a commit.

    >>> _model_name("Qwen/Qwen2.5-1.5B@0a1b"), _model_name("/models/qwen2.5-1.5b/")
    ('qwen2.5-1.5b', 'qwen2.5-1.5b')
    """
    return text.rstrip("/").rpartition("/")[2].partition("@")[0].lower()


def completion(text: bytes, request: Request, url: str, model: str, vocabulary: int) -> Completion:
    """The rollout that was asked for, its text as the server spells it.

    model: who was asked; a gateway may answer from another. vocabulary: above all tokens that the model has.
    Errors: Garbled; UserError for a server that never tells tokens with their log-probs.
    """
    whole, choice = parsed(text), _choice(text)
    if (by := whole.get("model", model)) != model:
        raise Garbled(f"an answer of the model '{by!s:.60}', where '{model}' was asked")
    if choice.get("prompt_token_ids") not in (None, list(request.prompt_ids)):
        raise Garbled("an answer to another prompt")
    ids, told = choice.get("token_ids"), choice.get("logprobs")
    scores = told.get("token_logprobs") if isinstance(told, dict) else told
    if ids is None or scores is None:
        raise UserError(
            f"{url}: the server returns no token ids with log-probs, which training needs; use vLLM 0.11 or newer"
            " (`return_token_ids`)"
        )
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < vocabulary for i in ids):
        raise Garbled("tokens that are none")
    if not isinstance(scores, list) or not all(s is None or _is_logprob(s) for s in scores):
        raise Garbled("log-probs that are none")
    if len(scores) != len(ids) or not 0 < len(ids) <= request.decoding.max_tokens:
        raise Garbled(f"{len(ids)} tokens with {len(scores)} log-probs, of at most {request.decoding.max_tokens}")
    spelt, finish = choice.get("text"), choice.get("finish_reason")
    if not isinstance(spelt, str) or finish not in ("stop", "length"):
        raise Garbled(f"a completion without a text, or that ended by '{finish}'")
    logprobs_T = np.array([np.nan if s is None or s < NO_LOGPROB else s for s in scores], np.float32)
    return Completion(request.key, spelt, ids, logprobs_T, cast(Finish, finish))


def likeliest(text: bytes) -> list[float]:
    """Log-probs of the likeliest first tokens, rising. Errors: Garbled."""
    try:
        found = sorted(map(float, _choice(text)["logprobs"]["top_logprobs"][0].values()))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        found = []
    if not found:
        raise Garbled(f"no log-probs of the likeliest tokens: '{_start(text)}'")
    return found


def _choice(text: bytes) -> dict[str, Any]:
    found = parsed(text).get("choices")
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        raise Garbled(f"no choice, or several: '{_start(text)}'")
    return found[0]


def _is_logprob(value: object) -> bool:
    return isinstance(value, int | float) and value <= ROUNDING


def _start(text: bytes) -> str:
    return " ".join(text[:80].decode(errors="replace").split())
