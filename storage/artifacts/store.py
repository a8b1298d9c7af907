"""The artifact store: immutable folders of Parquet with a manifest, under one root.

An artifact is written to a scratch folder, flushed to disk and renamed, so it exists whole or not at all. If two
processes write the same artifact, the first one wins. Only the store decides which artifacts are reused.
"""

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from storage.artifacts.fingerprint import file_digest
from storage.artifacts.manifest import FORMAT, FileEntry, Manifest, Provenance, Recipe, parse_manifest
from storage.artifacts.ref import NAME, Ref
from storage.artifacts.rows import Payload, read_parts, whole_groups, write_rows
from storage.errors import UserError
from storage.leases import leases_of
from storage.mirror import Mirror, mirror_of
from storage.roots import linkless, sync, sync_tree

K = TypeVar("K", bound=Ref)
DATA, MANIFEST, FILES = "data.parquet", "manifest.json", "files"
#: File in the folder of a light copy that lists the files that are in the manifest but not in the copy.
LEFT = "left.json"


def left_out(folder: Path) -> frozenset[str]:
    """Return the files that are in an artifact's manifest but not in its light copy."""
    with suppress(OSError, orjson.JSONDecodeError):
        return frozenset(orjson.loads((folder / LEFT).read_bytes()))
    return frozenset()


class Store:
    """The artifacts under `root`. Threads, processes and machines may share it."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._mirror = mirror_of(self.root)
        self._verified: dict[Ref, Manifest] = {}
        self._stamps: dict[Ref, int] = {}

    def prepare(self) -> None:
        """Create the root, readable by this user only (0700). Raise UserError if the root cannot be written."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.scratch, self.root / ".locks"):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.scratch / f"probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"varband")
            probe.unlink()
        except OSError as error:
            raise UserError(
                f"store {self.root}: cannot be written ({error.strerror or error}); make room or allow writing there,"
                " or choose another folder with --root"
            ) from None

    @property
    def scratch(self) -> Path:
        return linkless(self.root, ".scratch")

    def path(self, ref: Ref) -> Path:
        return self.root / ref.kind / str(ref)

    def files(self, ref: Ref) -> Path:
        """Return the folder of the artifact's files other than rows."""
        return self.path(ref) / FILES

    def has(self, ref: Ref) -> bool:
        """Return whether the artifact exists and is intact. The files of an artifact are checked once per process."""
        manifest_path = self.path(ref) / MANIFEST
        if self._mirror:
            self._mirror.refresh(ref)
        try:
            stamp = manifest_path.stat().st_mtime_ns
        except OSError:
            return False
        if self._stamps.get(ref) == stamp and (self.path(ref) / DATA).exists():
            return True
        try:
            manifest = parse_manifest(manifest_path.read_bytes(), str(manifest_path))
            left = left_out(self.path(ref))
            if manifest.ref != ref or not all(self._intact(ref, e) for e in manifest.files if e.path not in left):
                return False
        except (UserError, OSError):
            return False
        self._stamps[ref], self._verified[ref] = stamp, manifest
        return True

    def rows_of(self, refs: Iterable[Ref]) -> list[Path]:
        """Return the Parquet files of artifacts without checking them. Raise UserError if a file is a link."""
        paths = {ref: linkless(self.root, f"{ref.kind}/{ref}/{DATA}") for ref in refs}
        if self._mirror:
            self._mirror.bring_rows([ref for ref, path in paths.items() if not path.exists()])
        return list(paths.values())

    def fresh(self, ref: Ref) -> bool:
        """Return whether the artifact exists and was made from the present versions of its inputs."""
        if not self.has(ref):
            return False
        made_from = self._verified[ref].made_from
        return all(self.has(i := Ref.parse(text)) and self._verified[i].token == t for text, t in made_from.items())

    def _intact(self, ref: Ref, entry: FileEntry) -> bool:
        """Return whether a file is as its entry in the manifest says. Raise UserError for a link in the artifact."""
        path = linkless(self.root / ref.kind, f"{ref}/{entry.path}")
        return path.is_file() and path.stat().st_size == entry.bytes and file_digest(path) == entry.sha256

    def examine(self, manifest: Manifest) -> None:
        """Raise UserError with the first file that differs from the manifest."""
        left = left_out(self.path(manifest.ref))
        for entry in (e for e in manifest.files if e.path not in left):
            if not self._intact(manifest.ref, entry):
                raise UserError(
                    f"{manifest.ref}: {entry.path} is missing or damaged; run `varband store verify --repair`"
                )

    def manifest(self, ref: Ref) -> Manifest:
        path = self.path(ref) / MANIFEST
        if not path.exists():
            raise UserError(f"no artifact {ref} under {self.root} (see: varband store ls)")
        return parse_manifest(path.read_bytes(), str(path))

    def read(self, ref: Ref, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of one artifact. Raise UserError if the artifact is missing or damaged."""
        self.check(ref)
        return pq.ParquetFile(self.path(ref) / DATA).read(columns=columns)

    def check(self, ref: Ref) -> None:
        """Download an artifact from object storage. Raise UserError for a missing or damaged artifact."""
        if not self.has(ref):
            state = "is damaged: run the same command again to remake it" if self.path(ref).exists() else "is not here"
            raise UserError(f"artifact {ref} under {self.root} {state}")

    def parts(self, ref: Ref, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in parts, for artifacts that do not fit into memory."""
        self.check(ref)
        return read_parts(self.path(ref) / DATA, columns)

    def keys(self, ref: Ref, by: list[str]) -> pa.Table:
        """Return these columns of all rows, with texts encoded as dictionaries."""
        self.check(ref)
        return pq.ParquetFile(self.path(ref) / DATA, read_dictionary=by).read(columns=by)

    def groups(self, ref: Ref, by: list[str], columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield parts of whole groups. A group has equal values in the columns `by`, which are among `columns`."""
        return whole_groups(self.parts(ref, columns), self.keys(ref, by))

    def refs(self, kind: str | None = None) -> list[Ref]:
        """Return all artifacts that have a manifest, sorted, without checking them."""
        if self._mirror:
            self._mirror.refresh_names()
        found = list[Ref]()
        for folder in sorted(self.root.iterdir()) if self.root.is_dir() else []:
            if NAME.fullmatch(folder.name) and kind in (None, folder.name) and folder.is_dir():
                with os.scandir(folder) as entries:
                    refs = [ref for entry in entries if (ref := Ref.named(entry.name)) and ref.kind == folder.name]
                found += [ref for ref in sorted(refs) if (self.path(ref) / MANIFEST).exists()]
        return found

    def write(self, ref: Ref, payload: Payload, recipe: Recipe, provenance: Provenance) -> int:
        """Write an artifact, and return its number of rows. If another process wrote it first, that artifact stays,
        unless it is stale or damaged. Raise WrongRows if the schema is not that of the kind."""
        aside = self.scratch / f"{ref}-{uuid.uuid4().hex}"
        try:
            aside.mkdir(parents=True)
            rows = write_rows(payload.table, ref, aside / DATA)
            if payload.files is not None:
                shutil.copytree(payload.files, aside / FILES)
            entries = [_entry(path, aside) for path in sorted(aside.rglob("*")) if path.is_file()]
            made_from = {t: self.manifest(Ref.parse(t)).token for refs in recipe.inputs.values() for t in refs}
            manifest = Manifest(
                format=FORMAT,
                kind=ref.kind,
                fingerprint=ref.fingerprint,
                token=uuid.uuid4().hex,
                made_from=made_from,
                rows=rows,
                recipe=recipe,
                files=entries,
                provenance=provenance,
            )
            (aside / MANIFEST).write_text(manifest.model_dump_json(indent=1))
            sync_tree(aside)
            self.publish(aside, ref)
            return rows
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def publish(self, aside: Path, ref: Ref, *, replace: bool = False) -> None:
        """Move a finished folder into place. replace: even if a fresh artifact is there."""
        if self._mirror and replace:
            self._mirror.publish(aside, ref, over=self._mirror.token(ref))
        elif self._mirror and not self._published_first(self._mirror, aside, ref):
            return
        target = linkless(self.root, f"{ref.kind}/{ref}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(aside, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not replace and self.fresh(ref):
                return
            grave = self.scratch / f"replaced-{ref}-{uuid.uuid4().hex}"
            os.rename(target, grave)
            os.rename(aside, target)
            shutil.rmtree(grave, ignore_errors=True)
        sync(target.parent)

    def _published_first(self, mirror: Mirror, aside: Path, ref: Ref) -> bool:
        """Publish on object storage. Return whether this process wrote first, or replaced a stale artifact."""
        if mirror.publish(aside, ref, over=None):
            return True
        mirror.refresh(ref, now=True)
        if self.fresh(ref):
            return False
        return mirror.publish(aside, ref, over=mirror.token(ref)) or self._published_first(mirror, aside, ref)

    def delete(self, ref: Ref) -> None:
        """Remove an artifact. The folder is renamed first, so that readers never see a part of it."""
        if self._mirror:
            self._mirror.remove(ref)
        grave = self.scratch / f"deleted-{ref}-{uuid.uuid4().hex}"
        grave.parent.mkdir(parents=True, exist_ok=True)
        os.rename(self.path(ref), grave)
        shutil.rmtree(grave)

    def bring_work(self, ref: Ref) -> None:
        """Download the files of an unfinished artifact that another machine put on object storage."""
        if self._mirror:
            self._mirror.bring_work(ref)

    @contextmanager
    def keeping(self, ref: Ref) -> Iterator[Callable[[Sequence[Path]], None]]:
        """Yield a function that stores files of an unfinished artifact for other machines, in place of earlier files.

        On object storage, files are uploaded in the background; of several waiting checkpoints only the newest is. The
        block ends after the last upload. In a root on disk the function does nothing.
        """
        if (mirror := self._mirror) is None:
            yield lambda paths: None
            return

        def upload(paths: Sequence[Path]) -> None:
            with suppress(FileNotFoundError):  # a newer checkpoint replaced the file
                mirror.keep_work(ref, paths)

        with ThreadPoolExecutor(1, thread_name_prefix="keeping") as thread:
            uploads: list[Future[None]] = []

            def keep(paths: Sequence[Path]) -> None:
                uploads[:] = [one for one in uploads if not one.cancel() and not (one.done() and one.result() is None)]
                uploads.append(thread.submit(upload, paths))

            yield keep
            for one in uploads:
                one.result()

    def finish_work(self, ref: Ref) -> None:
        """Delete the files of a finished artifact's unfinished state from object storage."""
        if self._mirror:
            self._mirror.keep_work(ref, ())

    @contextmanager
    def making(self, ref: Ref, tell: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Hold the lease of `ref` while it is made. A second process waits for the artifact and reuses it."""
        with leases_of(self.root).claimed({str(ref): ["whole"]}, tell):
            if self._mirror:  # another machine may have made the artifact in the meantime
                self._mirror.refresh(ref, now=True)
            yield


def _entry(path: Path, folder: Path) -> FileEntry:
    return FileEntry(path=path.relative_to(folder).as_posix(), bytes=path.stat().st_size, sha256=file_digest(path))
