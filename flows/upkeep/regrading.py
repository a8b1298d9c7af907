"""Grade every stored rollout again with the active grader. Report changed verdicts and figures."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from storage.artifacts.ref import Ref
from storage.artifacts.schemas import Pool, Rollouts
from storage.artifacts.store import Store
from storage.ledger import Ledger
from storage.records.garbage import closure
from tasks.domain.scaffolds import ARMS
from tasks.evidence import known_scaffolds
from tasks.grading import actively_graded
from tasks.regrading import CHANGES, changes, golds_of, moved, outside, regrade
from tasks.stage import toolbox


@dataclass(slots=True)
class Regraded:
    """The result of regrading a store. artifacts: one entry for each artifact with changed rows. ledger: counts of
    rollouts that are only in the ledger. stored: rollouts with their texts; imported counts cannot be graded again."""

    version: str
    changes: pa.Table
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    figures: list[pa.Table] = field(default_factory=list)
    ledger: dict[str, int] = field(default_factory=dict)
    stored: int = 0

    def sentences(self) -> Iterator[str]:
        """Yield the summary in sentences. Details are in the tables `changes` and `figures`."""
        if not self.stored:
            yield "this store has no rollouts with their texts, so nothing can be graded again"
            return
        if unread := self.ledger["unread"]:
            yield f"{unread} rollouts of the ledger stay as they are: no artifact holds their arm's scaffold any more"
        rows = sum(entry["rows"] for entry in self.artifacts) + self.ledger["rows"]
        if not rows:
            yield f"every stored rollout is graded by {self.version} already"
            return
        yield f"grader {self.version}: {rows} rollouts regraded, {self.changes.num_rows} verdicts changed"
        if self.ledger["rows"]:
            yield (
                f"{self.ledger['rows']} of them are in the ledger only (training): {self.ledger['changed']} verdicts"
                " changed; no adapter is trained again"
            )
        for entry in self.artifacts:
            if entry["built_on_it"]:
                built = ", ".join(entry["built_on_it"])
                yield f"{entry['rollouts']} has other verdicts in {entry['regraded']}; built on the old ones: {built}"
        yield "the next `varband run` uses these verdicts"

    def as_json(self) -> dict[str, Any]:
        return {
            "grader_version": self.version,
            "artifacts": self.artifacts,
            "changes": self.changes.to_pylist(),
            "figures": [row for t in self.figures for row in t.to_pylist()],
            "ledger": self.ledger,
            "stored": self.stored,
        }


def regrade_store(store: Store) -> Regraded:
    """Make a regraded artifact for each artifact whose verdicts change, and report changes elsewhere in the ledger."""
    grader = toolbox().grader
    found = Regraded(grader.version, CHANGES.empty_table())
    flips, artifacts = [found.changes], []
    for pool, refs in by_pool(store).items():
        problems = store.read(pool, ["problem_id", "gold"])
        for ref in refs:
            old, now = store.read(ref), regrade(rollouts=ref, pool=pool, grader=grader)
            artifacts.append(old)
            found.stored += old.num_rows
            if now == ref:
                continue
            new = store.read(now)
            diff = changes(old, new, golds_of(old, problems))
            flips.append(diff)
            found.figures.append(moved(old, new))
            found.artifacts.append(
                {
                    "rollouts": str(ref),
                    "regraded": str(now),
                    "rows": old.num_rows,
                    "changed": diff.num_rows,
                    "built_on_it": _descendants(store, ref) if diff.num_rows else [],
                }
            )
    book, rows, changed, unread = Ledger(store.root), 0, 0, 0
    scaffolds = known_scaffolds()
    for account, about in book.accounts():
        kept = book.read(account)
        rest = None if kept is None else outside(kept, artifacts)
        found.stored += 0 if rest is None else rest.num_rows
        if rest is None or set(rest["grader_version"].to_pylist()) <= {found.version}:
            continue
        # ledger entries of earlier versions name no scaffold, so the arm's current scaffold reads them
        reads = scaffolds.get(str(about.get("scaffold"))) if about.get("scaffold") else None
        if reads is None and (about.get("scaffold") or set(rest["arm"].to_pylist()) - ARMS.keys()):
            unread += rest.num_rows
            continue
        now = actively_graded(rest, reads).select(Rollouts.schema.names)
        diff = changes(rest.select(Rollouts.schema.names), now, rest["gold"].to_pylist())
        flips.append(diff)
        rows, changed = rows + rest.num_rows, changed + diff.num_rows
    found.changes, found.ledger = pa.concat_tables(flips), {"rows": rows, "changed": changed, "unread": unread}
    return found


def by_pool(store: Store) -> dict[Pool, list[Rollouts]]:
    """Return the sampled rollouts of the store, by their pool."""
    found: dict[Pool, list[Rollouts]] = {}
    for ref in store.refs("rollouts"):
        recipe = store.manifest(ref).recipe
        if recipe.stage != "regrade_rollouts" and recipe.inputs.get("pool"):
            found.setdefault(Pool.parse(recipe.inputs["pool"][0]), []).append(Rollouts.parse(str(ref)))
    return found


def _descendants(store: Store, ref: Ref) -> list[str]:
    """Return the artifacts that were made from `ref`, also through others."""
    every = {one: store.manifest(one) for one in store.refs()}
    known = {one: m for one, m in every.items() if m.recipe.stage != "regrade_rollouts"}
    return sorted(str(one) for one in known if one != ref and ref in closure(known, [one]))
