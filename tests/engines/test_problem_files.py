"""Files of problems: every way in which one can be wrong is one sentence naming file, line and field."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from cli.grade import grade
from cli.pool import pool
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.domain.problems.sources import SOURCES
from tasks.engines import problem_files
from tasks.engines.grading.graders import read_grade_items
from tasks.engines.problem_files import fetch_source, load_hub, parse_hub_name, read_problems
from tasks.engines.toolbox import Toolbox
from tasks.pool import PoolPolicy, build_pool
from tasks.stage import Session, session

GOOD = '{"uid": "a", "problem": "One?", "gold": "1"}'


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('{"uid": "b", "problem": "Two?"}', "line 2: no field 'gold'"),
        ('{"uid": "a", "problem": "Two?", "gold": "2"}', "line 2: the id 'a' is also in line 1"),
        ('{"uid": "b", "problem": "Two?", "gold": " "}', "line 2: field 'gold': it must be a text that is not empty"),
        ('{"uid": "b", "problem": "", "gold": "2"}', "line 2: field 'problem': it must be a text that is not empty"),
        ('{"uid": "b", "problem": "Two?", "gold": "2"', "line 2: this is not JSON"),
        ('{"uid": "b", "problem": "Two?", "gold": NaN}', "line 2: field 'gold': gold is nan"),
        ('{"uid": "b", "problem": "T \\ud800?", "gold": "2"}', "line 2: field 'problem': problem is 'T "),
        ("[" * 100_000, "line 2: this is not JSON"),
    ],
)
def test_bad_lines(tmp_path: Path, second: str, words: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(f"{GOOD}\n{second}\n")
    with pytest.raises(UserError, match=r"mine\.jsonl") as error:
        read_problems(file, "mine")
    assert words in str(error.value)


def test_a_question_and_its_answer_are_a_problem_and_its_gold(tmp_path: Path) -> None:
    """As on the hub. Where both are there they must be the same, and an error names the field that the file has."""
    path = tmp_path / "pool.jsonl"
    path.write_text('{"question": "One?", "answer": "1"}\n{"problem": "Two?", "answer": "2", "gold": 2}\n')
    assert [(r["problem"], r["gold"]) for r in read_problems(path, "mine")] == [("One?", "1"), ("Two?", "2")]
    path.write_text(r'{"question": "Eggs?", "answer": "16 - 7 = <<16-7=9>>9.\n9 * 2 = $18.\n#### 18"}')  # GSM8K's own
    assert [r["gold"] for r in read_problems(path, "mine")] == ["18"]
    path.write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(UserError, match="is not JSON in UTF-8"):
        read_problems(path, "mine")
    path.write_text('{"problem": "Two?", "answer": "3", "gold": 2}\n')
    with pytest.raises(UserError, match="fields 'gold' and 'answer' differ"):
        read_problems(path, "mine")
    path.write_text('{"question": "One?", "answer": ["1"]}\n')
    with pytest.raises(UserError, match="field 'answer': answer is"):
        read_problems(path, "mine")


def test_what_pandas_writes_is_read(tmp_path: Path) -> None:
    """CSV, an indented array of objects, and years that a gap in their column has made decimal."""
    wanted = [("One?", "1", 2024), ("Two, or three?", "0.5", None)]
    (tmp_path / "a.csv").write_text('problem,gold,year\nOne?,1,2024.0\n"Two, or three?",0.5,\n')
    rows = [{"problem": "One?", "gold": "1", "year": 2024.0}, {"problem": "Two, or three?", "gold": 0.5, "year": None}]
    (tmp_path / "b.json").write_text(json.dumps(rows, indent=2))
    for path in (tmp_path / "a.csv", tmp_path / "b.json"):
        assert [(r["problem"], r["gold"], r["year"]) for r in read_problems(path, "mine")] == wanted


def test_byte_order_mark_windows_line_ends_and_numbers_as_golds_are_read(tmp_path: Path) -> None:
    lines = [
        GOOD,
        '{"uid": 2, "problem": "Two?", "gold": 142.0, "level": 5}',
        '{"uid": "", "problem": "Six?", "gold": 6}',
    ]
    (tmp_path / "mine.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    rows = read_problems(tmp_path / "mine.jsonl", "mine")
    assert [(r["source_id"], r["gold"], r["level"]) for r in rows] == [
        ("a", "1", None),
        ("2", "142.0", "5"),
        ("mine__2", "6", None),
    ]


def test_a_bad_file_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(GOOD + "\n{")
    done = CliRunner().invoke(pool, [str(tmp_path / "mine.jsonl"), "--root", str(tmp_path / "root")])
    assert isinstance(done.exception, UserError) and done.exception.exit_code == 2
    assert not (tmp_path / "root").exists()


def test_parquet_reads_like_jsonl(tmp_path: Path) -> None:
    rows = [{"uid": "a", "problem": "One?", "gold": "1", "level": 2}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "mine.parquet")
    (tmp_path / "mine.jsonl").write_text(json.dumps(rows[0]))
    assert read_problems(tmp_path / "mine.parquet", "mine") == read_problems(tmp_path / "mine.jsonl", "mine")
    pq.write_table(pa.table({"question": ["One?"], "answer": ["1"]}), tmp_path / "hub.parquet")
    assert [(row["problem"], row["gold"]) for row in read_problems(tmp_path / "hub.parquet", "hub")] == [("One?", "1")]
    pq.write_table(pa.table({"problem": ["One?"]}), tmp_path / "bad.parquet")
    with pytest.raises(UserError, match="no field 'gold'"):
        read_problems(tmp_path / "bad.parquet", "bad")
    (tmp_path / "junk.parquet").write_bytes(b"junk")
    with pytest.raises(UserError, match="not a readable Parquet file"):
        read_problems(tmp_path / "junk.parquet", "junk")


def test_hub_loading_through_datasets_on_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text('{"question": "How many?", "answer": "two and two\\n#### 1,004"}\n')
    monkeypatch.setattr(datasets, "load_dataset", partial(datasets.load_dataset, cache_dir=str(tmp_path / "cache")))
    gsm8k, amc = (replace(SOURCES[n], hub=str(tmp_path / "set"), config=None) for n in ("gsm8k_train", "amc"))
    rows = load_hub(gsm8k, "a" * 40)
    assert [(r["problem"], r["gold"], r["source"]) for r in rows] == [("How many?", "1004", "gsm8k_train")]
    with pytest.raises(UserError, match="no column 'problem'"):
        load_hub(amc, "a" * 40)
    with pytest.raises(UserError, match=r"needs a commit, but 'main' was found; write amc@ and 40 hex digits"):
        load_hub(SOURCES["amc"], "main")


def test_a_hub_source_is_loaded_at_its_commit_and_the_manifest_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder stands for the hub's dataset: the same call of `datasets`, which is listened to."""
    for name, text in (("math", "Add \\(1+1\\)."), ("held", "Find the largest prime below one hundred.")):
        (tmp_path / name).mkdir()
        rows = {"problem": text, "solution": r"So \boxed{2}.", "answer": "97", "type": "Algebra", "level": "Level 1"}
        rows |= {"subject": "Number Theory"}
        (tmp_path / name / ("test.jsonl" if name == "held" else "train.jsonl")).write_text(json.dumps(rows) + "\n")
    asked: list[tuple[str, str | None, str]] = []
    really = datasets.load_dataset

    def listening(path: str, name: str | None = None, **how: Any) -> Any:
        asked.append((Path(path).name, name, how["revision"]))
        return really(path, name, **how, cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", listening)
    monkeypatch.setattr(problem_files, "MATH_SUBJECTS", (None,))
    for name, folder in (("math_train", "math"), ("math500", "held")):
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], hub=str(tmp_path / folder)))
    commits = {"math_train": "a" * 40, "math500": "b" * 40}
    spec, path = fetch_source(SOURCES["math_train"], commits, tmp_path / "hub")
    assert asked == [("math", None, "a" * 40), ("held", None, "b" * 40)]
    assert spec.hub == (("math_train", str(tmp_path / "math"), "a" * 40), ("math500", str(tmp_path / "held"), "b" * 40))
    assert [(r["problem"], r["gold"], r["subject"]) for r in read_problems(path, "math_train")] == [
        ("Add \\(1+1\\).", "2", "Algebra")
    ]
    assert fetch_source(SOURCES["math_train"], commits, tmp_path / "hub") == (spec, path)
    assert len(asked) == 2, "a commit is fetched once"

    store, tools = Store(tmp_path / "store"), Toolbox(places={spec.sha256: path})
    store.prepare()
    with session(Session(store, tools)):
        recipe = store.manifest(build_pool(sources=(spec,), policy=PoolPolicy())).recipe
    tools.close()
    assert "a" * 40 in json.dumps(recipe.arguments) and "b" * 40 in json.dumps(recipe.arguments)
    with pytest.raises(UserError, match=r"source math500: .* needs a commit, .* write math500@"):
        fetch_source(SOURCES["math_train"], {"math_train": "a" * 40}, tmp_path / "other")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (f"openai/gsm8k@{'a' * 40}", "is a known set: write gsm8k_train@COMMIT or gsm8k_test@COMMIT"),
        (f"amc@{'a' * 40}:test", "the split of a known set is fixed; remove :test"),
    ],
)
def test_what_is_no_id_of_problems_on_the_hub(wish: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_hub_name(wish)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"arm": "pannel", "completion": "x", "gold": "1"}', "field 'arm' is 'pannel' (known: panel"),
        ('{"completion": "7", "gold": "7"}', "arm is missing"),
        ("{", "is not JSON"),
    ],
)
def test_bad_rollouts(line: str, words: str) -> None:
    with pytest.raises(UserError, match="standard input, line 1") as error:
        read_grade_items(line.encode())
    assert words in str(error.value)


def test_rollouts_are_read_by_the_arms_of_the_study_that_they_are_of(tmp_path: Path) -> None:
    """`7.5` is a number and no whole one; `{whole}` asks for its answer as panel does."""
    study = 'base = "demo"\narms = ["panel", "whole"]\n[scaffolds.whole]\nbase = "panel"\nanswer_kind = "integer"\n'
    (tmp_path / "mine.toml").write_text(study)
    said = "<mutipersonaDebate>so</mutipersonaDebate> <answer>15/2</answer>"
    rows = [json.dumps({"arm": arm, "completion": said, "gold": "7.5"}) for arm in ("panel", "whole")]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    done = CliRunner().invoke(grade, ["file", str(tmp_path / "rows.jsonl"), "--study", str(tmp_path / "mine.toml")])
    told = [json.loads(line)["verdict"] for line in done.output.splitlines()]
    assert told == ["correct", "wrong"], done.output
