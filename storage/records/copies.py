"""Copies of a study in another root, with everything that a report, an audit and a resumed run need.

A light copy has no checkpoints, and only the adapters that later trainings start from, because adapters are by far the
largest part of a study. The trainings of a light copy list the missing files in `left.json`. Artifacts that the target
already has do not change, except that missing weights are added.
"""

import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from storage.artifacts.manifest import Manifest
from storage.artifacts.ref import KINDS, Ref
from storage.artifacts.store import LEFT, MANIFEST, Store, left_out
from storage.errors import Notice, UserError
from storage.ledger import ABOUT, Ledger
from storage.mirror import Mirror, mirror_of
from storage.records.garbage import closure, collecting
from storage.records.record import OVERRIDES, REGISTER, register_path
from storage.records.runs import planned_refs
from storage.records.spending import PRICES
from storage.roots import address_of, linkless, sync_tree, write_durably


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a copy. artifacts, shards: copied now. left_bytes: weights that were left out. others: artifacts
    that were not copied, because the target has another version of them."""

    artifacts: int = 0
    shards: int = 0
    bytes: int = 0
    left_bytes: int = 0
    others: int = 0

    def __add__(self, more: "Copied") -> "Copied":
        return Copied(*(getattr(self, f) + getattr(more, f) for f in self.__slots__))


def copy_study(
    source: Path, target: Path, run: str | None = None, *, weights: bool = True, renew: bool = False
) -> Copied:
    """Copy the artifacts of a run so far, or of a whole root, with the ledger's rollouts, the records and overrides.

    weights: if False, make a light copy. renew: replace artifacts that the target has in another version, as for a
    backup. Raise UserError for an unknown run, and if the target is the source or cannot have light copies.
    """
    if source.resolve() == target.resolve():
        raise UserError(f"{target} is the root that would be copied; choose another target")
    if mirror_of(target) and not weights:
        raise UserError(
            f"{address_of(target)} is on object storage, where a copy needs weights; leave out --without weights"
        )
    store, into = Store(source), Store(target)
    into.prepare()
    with collecting(source, alone=False, only_reads=True), collecting(target, alone=False):
        # records come before artifacts and charges after rollouts, so that none refers to data that is not there yet
        mirrors = [mirror for mirror in map(mirror_of, (source, target)) if mirror]
        for mirror in mirrors:
            _bring_records(mirror)
        patterns = f"runs/{run or '*'}.json*", f"{OVERRIDES}/*", "nights/*", PRICES
        records = _copied(source, target, *patterns, newer=lambda file: file.st_mtime_ns)
        records += sum(_copy_register(source, target))
        known, unread = dict[Ref, Manifest](), list[Ref]()
        for ref in store.refs():
            try:
                known[ref] = store.manifest(ref)
            except (UserError, FileNotFoundError):
                unread.append(ref)
        if unread:
            many = f"{len(unread)} artifacts are left out because their manifests cannot be read (first {unread[0]})"
            warnings.warn(Notice(f"{many}: `varband store verify` says why"), stacklevel=2)
        chosen = list(known) if run is None else sorted(closure(known, planned_refs(source, run)))
        left = {} if weights else _left_by_light_copies(known)
        none = frozenset[str]()
        parts = [_copy_artifact(store, into, known[ref], left.get(str(ref), none), renew=renew) for ref in chosen]
        shards = [size for size in _copy_ledger(source, target, None if run is None else chosen) if size]
        for mirror in mirrors:
            mirror.sync("spending")
        # journals only grow, so the longer one is newer, even if a clock was set back
        records += _copied(source, target, f"spending/{run or '*'}/*.jsonl", newer=lambda file: file.st_size)
        if weights:  # also copy what unfinished trainings need to resume
            if mirror := mirror_of(source):
                mirror.bring_work()
            records += _copied(source, target, ".work/*/checkpoints/**/*", ".work/*/served/**/adapter_*")
    return sum(parts, Copied(shards=len(shards), bytes=sum(shards) + records))


def _left_by_light_copies(known: Mapping[Ref, Manifest]) -> dict[str, frozenset[str]]:
    """Return the weights that a light copy leaves out, by training. A lesson keeps the adapters that other trainings
    start from. A training keeps none if its last adapter was sampled."""
    sampled, starts = set[tuple[str, int]](), dict[str, set[int]]()
    for manifest in known.values():
        for policy in map(manifest.recipe.arguments.get, ("policy", "start")):
            if isinstance(policy, dict) and (adapter := policy.get("adapter")):
                sampled.add((adapter, policy["step"]))
                if not policy["step"]:
                    starts.setdefault(adapter, set()).add(policy["adapter_step"])
    left = dict[str, frozenset[str]]()
    for ref, manifest in known.items():
        mark = KINDS[manifest.kind].WEIGHTS if manifest.kind in KINDS else None
        if not (files := frozenset(e.path for e in manifest.files if mark and e.path.startswith(mark))):
            continue
        if str(ref) in starts:
            left[str(ref)] = frozenset(file for file in files if _step_of(file) not in starts[str(ref)])
        elif (str(ref), max(map(_step_of, files))) in sampled:
            left[str(ref)] = files
    return left


def _step_of(path: str) -> int:
    """Return the step in a file's path.

    >>> _step_of("files/step-0040/adapter_model.safetensors")
    40
    """
    return int(path.split("/")[1].removeprefix("step-"))


def _copy_artifact(store: Store, into: Store, manifest: Manifest, light: frozenset[str], *, renew: bool) -> Copied:
    """Copy one artifact to another store that does not have it. light: files to leave out."""
    ref, away = manifest.ref, left_out(store.path(manifest.ref))
    left = {e.path for e in manifest.files if e.path in away} | light
    if into.has(ref):
        if into.manifest(ref).token != manifest.token:
            if not renew:
                return Copied(others=1)
        elif left_out(into.path(ref)) <= left:
            return Copied(left_bytes=sum(e.bytes for e in manifest.files if e.path in left_out(into.path(ref))))
    if left and mirror_of(into.root):
        raise UserError(
            f"{ref} has no weights here, and {address_of(into.root)} is on object storage, where copies without weights"
            " are not possible"
        )
    for name in (MANIFEST, *(entry.path for entry in manifest.files)):
        linkless(store.root, f"{ref.kind}/{ref}/{name}")
    if not store.has(ref):
        return Copied()  # the artifact is damaged, or was deleted just now; a run remakes it
    aside = into.scratch / f"copy-{ref}-{uuid.uuid4().hex}"
    try:
        for name in (MANIFEST, *(entry.path for entry in manifest.files if entry.path not in left)):
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store.path(ref) / name, aside / name)
            _readable_by_the_same(store.path(ref) / name, aside / name)
        if left:
            (aside / LEFT).write_bytes(orjson.dumps(sorted(left)))
        sync_tree(aside)
        into.publish(aside, ref, replace=True)  # the target's is lighter, damaged, or another version
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sizes = {kept: sum(e.bytes for e in manifest.files if (e.path not in left) == kept) for kept in (True, False)}
    return Copied(artifacts=1, bytes=sizes[True], left_bytes=sizes[False])


def _copy_ledger(source: Path, target: Path, chosen: list[Ref] | None) -> Iterator[int]:
    """Yield the bytes of each copied shard. chosen: copy only base models and the adapters of these trainings."""
    mine = None if chosen is None else {None, *map(str, chosen)}
    Ledger(target).accounts()  # downloads the accounts from object storage
    for account, about in Ledger(source).accounts():
        if mine is None or about.get("adapter") in mine:
            folder = Path("ledger", account.policy, account.sampling)
            _copy_file(source, target, folder / ABOUT)
            for shard in sorted((source / folder).glob("shard-*.parquet")):
                yield _copy_file(source, target, folder / shard.name)


def _copied(source: Path, target: Path, *patterns: str, newer: Callable[[os.stat_result], int] | None = None) -> int:
    """Copy matching files, JSON last because it completes a checkpoint. Return the bytes. newer: see `_copy_file`."""
    found = (path for pattern in patterns for path in source.glob(pattern) if path.is_file() and path.suffix != ".tmp")
    ordered = sorted(found, key=lambda path: (path.suffix == ".json", path))
    return sum(_copy_file(source, target, path.relative_to(source), newer) for path in ordered)


def _bring_records(mirror: Mirror) -> None:
    for folder in ("runs", "nights"):
        mirror.follow(folder)
    for folder in (OVERRIDES, REGISTER):
        mirror.sync(folder)
    if found := mirror.get(PRICES):
        write_durably(mirror.root / PRICES, found[0])


def _copy_register(source: Path, target: Path) -> Iterator[int]:
    """Yield the bytes of a copied register. A register is copied only if it continues the target's register."""
    ours, theirs = (path.read_bytes() if path.exists() else b"" for path in map(register_path, (source, target)))
    if len(ours) <= len(theirs) and theirs.startswith(ours):
        return
    if ours.startswith(theirs):
        yield _copy_file(source, target, register_path(source).relative_to(source), lambda file: file.st_size)
    else:
        notice = f"{register_path(target)} has other entries than {register_path(source)}, and is not changed"
        warnings.warn(Notice(notice), stacklevel=2)


def _readable_by_the_same(source: Path, to: Path) -> None:
    """Copy the permissions of a file. The user who copies may write the copy."""
    to.chmod(source.stat().st_mode & 0o777 | 0o600)


def _copy_file(source: Path, target: Path, name: Path, newer: Callable[[os.stat_result], int] | None = None) -> int:
    """Copy a file, and return the bytes written; 0 if the target has it. newer: the file with the larger value wins.
    The copy keeps the modification time that was read, so that the next copy notices changes during this one."""
    source, to = linkless(source, name), linkless(target, name)
    at, have = source.stat(), to.stat() if to.exists() else None
    if have and (newer is None or newer(have) >= newer(at)):
        return 0
    to.parent.mkdir(parents=True, exist_ok=True)
    content = source.read_bytes()
    write_durably(to, content)
    _readable_by_the_same(source, to)
    os.utime(to, ns=(at.st_atime_ns, at.st_mtime_ns))
    if mirror := mirror_of(target):
        mirror.push(to)
    return len(content)
