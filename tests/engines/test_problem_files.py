"""Files of problems: every way in which one can be wrong is one sentence naming file, line and field."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import UserError
from tasks.domain.sources import SOURCES, source_spec
from tasks.engines.grading_files import read_grade_items
from tasks.engines.problem_files import load_hub, read_problems

GOOD = '{"uid": "a", "problem": "One?", "gold": "1"}'


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('{"uid": "b", "problem": "Two?"}', "line 2: no field 'gold'"),
        ('{"uid": "a", "problem": "Two?", "gold": "2"}', "line 2: the id 'a' stands in line 1 already"),
        ('{"uid": "b", "problem": "Two?", "gold": " "}', "line 2: field 'gold' must be text and not empty"),
        ('{"uid": "b", "problem": "Two?", "gold": null}', "line 2: field 'gold' must be text and not empty"),
        ('{"uid": "b", "problem": "", "gold": "2"}', "line 2: field 'problem' must be text"),
        ('{"uid": "b", "problem": "Two?", "gold": "2"', "line 2: is not JSON"),
        ('["b"]', "line 2: expected an object"),
        ('{"uid": "b", "problem": "Two?", "gold": "2", "year": "MMXX"}', "line 2: field 'year'"),
        ('{"uid": ["b"], "problem": "Two?", "gold": "2"}', "line 2: field 'source_id'"),
    ],
)
def test_bad_lines(tmp_path: Path, second: str, words: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(f"{GOOD}\n{second}\n")
    with pytest.raises(UserError, match=r"mine\.jsonl") as error:
        read_problems(file, "mine")
    assert words in str(error.value)


def test_mixed_encodings(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(GOOD.encode() + b"\n" + '{"uid": "b", "problem": "né?", "gold": "2"}'.encode("latin-1"))
    with pytest.raises(UserError, match=r"line 2: byte \d+ is not UTF-8"):
        read_problems(file, "mine")


def test_empty_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(UserError, match="holds no problems"):
        read_problems(tmp_path / "none.jsonl", "none")
    with pytest.raises(UserError, match="does not exist"):
        source_spec(tmp_path / "gone.jsonl", None)
    with pytest.raises(UserError, match="unknown source 'gsm8k_tset'; did you mean 'gsm8k_test'"):
        source_spec("gsm8k_tset", tmp_path)
    with pytest.raises(UserError, match=r"has no amc\.jsonl"):
        source_spec("amc", tmp_path)


def test_parquet_reads_like_jsonl(tmp_path: Path) -> None:
    rows = [{"uid": "a", "problem": "One?", "gold": "1", "level": 2}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "mine.parquet")
    (tmp_path / "mine.jsonl").write_text(json.dumps(rows[0]))
    assert read_problems(tmp_path / "mine.parquet", "mine") == read_problems(tmp_path / "mine.jsonl", "mine")
    pq.write_table(pa.table({"problem": ["One?"]}), tmp_path / "bad.parquet")
    with pytest.raises(UserError, match="no column 'gold'"):
        read_problems(tmp_path / "bad.parquet", "bad")
    (tmp_path / "junk.parquet").write_bytes(b"junk")
    with pytest.raises(UserError, match="not a readable Parquet file"):
        read_problems(tmp_path / "junk.parquet", "junk")


def test_hub_loading_through_datasets_on_a_local_file(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    file = tmp_path / "train.jsonl"
    file.write_text('{"question": "How many?", "answer": "two and two\\n#### 1,004"}\n')
    rows = load_hub(SOURCES["gsm8k_train"], None, loader="json", data_files=str(file), cache_dir=str(tmp_path / "c"))
    assert [(r["problem"], r["gold"], r["source"]) for r in rows] == [("How many?", "1004", "gsm8k_train")]
    with pytest.raises(UserError, match="no column 'problem'"):
        load_hub(SOURCES["amc"], None, loader="json", data_files=str(file), cache_dir=str(tmp_path / "c"))
    with pytest.raises(UserError, match="needs --revision"):
        load_hub(SOURCES["amc"], "main")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"arm": "pannel", "completion": "x", "gold": "1"}', "field 'arm' is 'pannel' (known: panel"),
        ('{"arm": "panel", "gold": "1"}', "no field 'completion'"),
        ('{"arm": "panel", "completion": "x", "gold": ""}', "field 'gold'"),
        ('{"arm": "panel", "completion": "x", "gold": "1", "finish": "eos"}', "field 'finish' is 'eos'"),
        ("{", "is not JSON"),
    ],
)
def test_bad_rollouts(line: str, words: str) -> None:
    with pytest.raises(UserError, match="standard input, line 1") as error:
        read_grade_items(line.encode())
    assert words in str(error.value)
