"""Which of the ledger is one study's: the accounts of the policies that its artifacts were sampled from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from storage.artifacts.ref import Ref
from storage.artifacts.store import Store
from storage.ledger import Ledger

#: Arguments of a stage that say who is sampled, and how.
WHO, HOW = ("policy", "start"), ("sampling", "rollouts", "evaluation")
DRAWN = ("max_tokens", "temperature", "top_p", "seed")
#: Of a sampling that does not say how keys and values are stored.
KV_CACHE = "full"


def shards_of(store: Store, made_from: Iterable[Ref]) -> Iterator[Path]:
    """Shards of every account that an artifact among these was sampled into, a training's own adapters included."""
    found = [(ref, store.manifest(ref)) for ref in made_from]
    sampled = [(ref, m.recipe.arguments, m.provenance.notes) for ref, m in found if _who(m.recipe.arguments)]
    digests = {(_who(given) or {})["arm"]: notes["scaffold"] for _, given, notes in sampled if "scaffold" in notes}
    known = {key for ref, given, _ in sampled for key in _keys(ref, given, digests)}
    book = Ledger(store.root)
    for account, about in book.accounts():
        if (*(about.get(name) for name in ("arm", "model", "adapter", "scaffold")), *_drawn(about)) in known:
            yield from book.shards(account)


def _keys(ref: Ref, given: Mapping[str, Any], digests: Mapping[str, str]) -> Iterator[tuple[object, ...]]:
    who = _who(given) or {}
    own = (str(ref),) if "start" in given else ()
    for adapter in (who.get("adapter"), *own):
        for how in (given[name] for name in HOW if isinstance(given.get(name), dict)):
            yield who["arm"], who["model"].get("name", ""), adapter, digests.get(who["arm"]), *_drawn(how)


def _who(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((given[name] for name in WHO if isinstance(given.get(name), dict)), None)


def _drawn(told: Mapping[str, Any]) -> Iterator[object]:
    for name in DRAWN:
        value = told.get(name)
        yield float(value["float"]) if isinstance(value, dict) else value
    yield told.get("kv_cache", KV_CACHE)
