"""What a newcomer's files got wrong and were told nothing of, or too late: after a pool was built, or as a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.study.asked import profile_asked, text_of
from flows.study.request import Request
from storage.artifacts.store import Store
from storage.errors import UserError

TEMPLATE = 'template = "{problem} <w>...</w> <answer>...</answer>"\ntrace_tag = "w"\nanswer_form = "tag"\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[pool]\nsynthetic = 4\nheldout_per_source = 4", 4, "all 4 problems of a source would be held out"),
        ("[pool]\nsources = ['aime24', 'amc', 'aime24']", 3, "aime24 stands there more than once"),
        ("[benchmarks.twice]\nsources = ['amc', 'amc']\ngroup_size = 2", 3, "amc stands there more than once"),
        ("[training]\ntarget_modules = ['q_proj', 'q_proj']", 3, "q_proj stands there more than once"),
        ("model = ''", 2, "model is empty"),
        ("[encoder]\nname = ' '", 3, "encoder.name is empty"),
        ("model = 'owner/name@main'", 2, "'owner/name@main' is no id on the hub"),
        ("[arms.panel]\nadapter = 'owner/name@v1'", 3, "'owner/name@v1' is no id on the hub"),
        ("[pool]\nsources = ['amc@main']", 3, "'amc@main' is no source on the hub"),
        (f"[scaffolds.'a/..']\n{TEMPLATE}", 2, "'a/..' is no name"),
        ("[arms.panel]\n[arms.'../x']\nscaffold = 'panel'", 3, "'../x' is no name"),
        ("[questions.'a b']\ntraining.steps = 3", 2, "'a b' is no name"),
        ("[matrix]\ntraining.steps = []", 3, "an empty list asks nothing"),
    ],
)
def test_is_refused_with_its_line_when_the_file_is_read(text: str, line: int, said: str) -> None:
    with pytest.raises(UserError) as raised:
        profile_asked("mine.toml", f'base = "demo"\n{text}')
    assert f"line {line}: " in str(raised.value) and said in str(raised.value) and "\n" not in str(raised.value)


def test_a_file_that_holds_no_problems_is_none_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root:x:0:0\n")
    asked = Request(profile="demo", settings=(f"pool.sources={tmp_path / 'passwd'}",))
    with pytest.raises(UserError, match=r"passwd is none of \.jsonl, \.json, \.ndjson, \.parquet"):
        asked.study(Store(tmp_path / "root"))


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "demo"\n', encoding="utf-8-sig")
    assert profile_asked(str(path), text_of(str(path))).called == "mine"
