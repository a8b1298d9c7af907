"""Addresses of a root, and names that may come from a bucket."""

from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.upkeep.verify import verify
from storage.artifacts.manifest import parse_manifest
from storage.artifacts.ref import Ref
from storage.artifacts.store import MANIFEST, Store
from storage.errors import Notice, UserError
from storage.mirror import mirror_of
from storage.reading.catalog import ask
from storage.reading.views import views
from storage.records.copies import copy_study
from storage.records.runs import run_path
from storage.roots import ADDRESS, inside, root_folder
from storage.sql import query
from tests.storage.records.test_copies import made


@pytest.mark.parametrize("text", ["\0", "gs://b/p", "s3://", "s3://B_/x", "s3://b/../x", "s3://key:secret@bucket/x"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError) as error:
        root_folder(text)
    assert "secret" not in str(error.value)


@given(st.text(max_size=40))
def test_no_name_from_the_bucket_leaves_the_root(name: str) -> None:
    root = Path("/some/root")
    try:
        found = inside(name)
    except UserError:
        return
    assert (root / found).resolve().is_relative_to(root)


NAUGHTY = st.text(max_size=60) | st.sampled_from(
    ["\x00", "../x", "/etc/passwd", "a/../../b", "..", "rollouts-../../..", "．．/x", "a∕b", "%2e%2e/x", "~/x", "-rf"]
)


@given(NAUGHTY)
def test_no_reference_from_a_user_leaves_the_root(name: str) -> None:
    root = Path("/some/place")
    try:
        path = Store(root).path(Ref.parse(name))
    except UserError:
        return
    assert path.resolve().is_relative_to(root)


@given(NAUGHTY)
def test_no_run_name_from_a_user_leaves_the_root(name: str) -> None:
    try:
        path = run_path(Path("/some/place"), name)
    except UserError:
        return
    assert path.resolve().is_relative_to("/some/place/runs")


# A root that somebody else made: looking at it, verifying and copying it neither writes nor reads anything else.


SECRET = b"a private key\n"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file of the user's, outside every root."""
    path = tmp_path / "home" / "key"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


def forged(root: Path, old: str, new: str) -> Path:
    """The manifest of a training, with another path or name in it."""
    manifest = Store(root).path(made(root)[1]) / MANIFEST
    manifest.write_text(manifest.read_text().replace(f'"{old}"', orjson.dumps(new).decode()))
    return manifest


@pytest.mark.parametrize("path", ["files/../../../../home/exposure.txt", "/tmp/exposure.txt"])
def test_a_path_in_a_manifest_stays_in_its_folder(tmp_path: Path, private: Path, path: str) -> None:
    manifest = forged(tmp_path / "theirs", "files/exposure.txt", path)
    (private.parent / "exposure.txt").write_text("light")
    with pytest.raises(UserError, match="outside"):
        parse_manifest(manifest.read_bytes(), str(manifest))
    with pytest.warns(Notice, match="1 artifacts are left out"):
        copy_study(tmp_path / "theirs", tmp_path / "mine" / "copy")
    assert not list((tmp_path / "mine").rglob("exposure.txt"))
    damage = verify(tmp_path / "theirs")[0].to_pylist()
    assert [row["path"] for row in damage] == [str(manifest.parent.relative_to(tmp_path / "theirs"))]


@pytest.mark.parametrize("link", ["swords/{ref}/files/exposure.txt", "swords", "nights/note.json"])
def test_a_link_is_not_followed_out_of_a_root(tmp_path: Path, private: Path, link: str) -> None:
    """A linked file would come into the copy, readable by all; a linked folder in the target would be written to."""
    theirs = tmp_path / "theirs"
    name = link.format(ref=made(theirs)[1])
    (theirs / "nights").mkdir(exist_ok=True)
    (theirs / "nights" / "note.json").write_text("{}")
    (theirs / name).rename(tmp_path / "home" / "moved")
    (theirs / name).symlink_to(tmp_path / "home" / "moved")
    with pytest.raises(UserError, match="link"):
        copy_study(theirs, tmp_path / "copy")
    if "{ref}" in link:
        assert "artifact" in verify(theirs)[0]["what"].to_pylist()


def test_only_a_root_that_this_machine_made_is_a_copy_of_a_bucket(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    made(theirs)
    (theirs / ADDRESS).write_text("s3://the-senders/bucket")
    assert mirror_of(theirs) is None


EVIL = "x\" as select 1; copy (select 42) to '{}'; --"


@pytest.mark.parametrize("statement", ["copy (select 42) to '{}'", "select * from read_text('{}')"])
def test_no_connection_reads_or_writes_another_file(tmp_path: Path, private: Path, statement: str) -> None:
    """Also where a name got into a statement: of views, of the catalog, of tables in memory."""
    pq.write_table(pa.table({"n": [1]}), tmp_path / "data.parquet")
    sql, evil = statement.format(private), EVIL.format(private)
    with views({"known": [tmp_path / "data.parquet"], evil: [tmp_path / "data.parquet"]}, {}) as asked:
        assert asked.sql("select n from known")["n"].to_pylist() == [1]
        for words in (sql, "set enable_external_access = true", "set allowed_directories = ['/']"):
            with pytest.raises((UserError, duckdb.Error)):
                asked.sql(words)
        with pytest.raises(UserError):
            asked.sql("select $name", {"name": evil})
    root = tmp_path / "root"
    made(root)
    with pytest.raises(UserError):
        ask(root, sql)
    assert ask(root, "select count(*) as n from swords")["n"].to_pylist() == [1]
    with pytest.raises(Exception, match="disabled"):
        query(sql)
    assert private.read_bytes() == SECRET


def test_a_new_root_is_its_users_alone(tmp_path: Path) -> None:
    """Its records hold notes and addresses. One that is there keeps its mode."""
    Store(tmp_path / "new").prepare()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "team").mkdir(mode=0o750)
    Store(tmp_path / "team").prepare()
    assert (tmp_path / "team").stat().st_mode & 0o777 == 0o750
