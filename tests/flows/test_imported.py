"""Rollouts of other tools become a study that samples nothing, graded by our grader, entered once."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import varband
from storage.errors import UserError
from storage.ledger import Ledger
from storage.sql import query
from tasks.engines.rollout_files import read_rollouts

EXAMPLES = Path(__file__).parents[2] / "examples" / "imports"
OTHERS = ("samples_lm_eval.jsonl", "completions_trl.parquet", "traces.jsonl")


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(varband, [str(word) for word in words])


@pytest.mark.parametrize(
    ("file", "tool", "first", "correct", "num_tokens", "finish"),
    [
        ("samples_lm_eval.jsonl", "lm-eval", "<think>", None, None, None),
        ("completions_trl.parquet", "TRL", "<think>", False, None, None),
        ("traces.jsonl", "verifiers", "3+4=7, so \\boxed{7}", True, 6, "stop"),
        pytest.param(
            *("inspect.eval", "inspect", "3+4=7\nANSWER: 7", True, 3, "stop"),
            marks=pytest.mark.skipif(not find_spec("inspect_ai"), reason="inspect_ai is not installed"),
        ),
    ],
)
def test_each_tools_file_is_read(
    file: str, tool: str, first: str, correct: bool | None, num_tokens: int | None, finish: str | None
) -> None:
    name, rollouts = read_rollouts(EXAMPLES / file)
    assert (name, len(rollouts)) == (tool, 8)
    one = rollouts[0]
    assert one.completion.startswith(first)
    assert (one.correct, one.num_tokens, one.finish) == (correct, num_tokens, finish)
    assert sum("Ann has 3 apples" in one.prompt for one in rollouts) == 2


def test_two_commands_from_other_peoples_rollouts_to_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arms = [word for name in ("lm_eval", "trl", "verifiers") for word in ("--arm", name)]
    words = (
        "import",
        *(EXAMPLES / name for name in OTHERS),
        *arms,
        "--pool",
        EXAMPLES / "problems.jsonl",
        "--root",
        "r",
    )
    first = command(*words, "--name", "others")
    assert first.exit_code == 0, first.output
    assert "verifiers: 8 rollouts, 8 of them new, 2 correct; the other tool's verdict differs on 0 of 8" in first.output
    assert "lm_eval, trl: without token counts; all lengths are numbers of words and signs" in first.output
    again = json.loads(command(*words, "--name", "others", "--json").stdout)
    assert again["study"] == "others.toml" and [one["new"] for one in again["entered"]] == [0, 0, 0]
    ran = command("run", "others.toml", "--root", "r")
    assert ran.exit_code == 0, ran.output
    ledger = Ledger("r")
    assert sum(len(ledger.keys(account)) for account, _ in ledger.accounts()) == 24  # nothing was sampled
    assert {about["tool"] for _, about in ledger.accounts()} == {"lm-eval", "TRL", "verifiers"}
    (report,) = Path("r").glob("report/*/files/report.html")
    assert "verifiers" in report.read_text()


def test_a_verdict_elsewhere_stands_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: #### 18 and \\boxed{18} are right, `it is 18` states no answer; the file takes the last for right."""
    monkeypatch.chdir(tmp_path)
    texts = (("6*3\n#### 18", 1), ("\\boxed{18}", 1), ("it is 18", 1), ("The answer is 17.", 0))
    rows = [
        {"question": "What is 6 times 3?", "answer": "18", "response": text, "score": right} for text, right in texts
    ]
    rows += [row | {"question": "What is 9 times 2?"} for row in rows[:3]]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command("import", "mine.jsonl", "--root", "r")
    assert "mine: 6 rollouts, 6 of them new, 4 correct; the other tool's verdict differs on 2 of 6" in done.output
    assert "mine: 1 rollouts beyond 3 a problem are left out" in done.output
    ((account, _),) = Ledger("r").accounts()
    rows = query("select correct, verdict_elsewhere as theirs from t", t=Ledger("r").read(account)).to_pylist()
    assert sorted((row["correct"], row["theirs"]) for row in rows) == [(False, True)] * 2 + [(True, True)] * 4


@pytest.mark.parametrize(
    ("rows", "words", "says"),
    [
        ([{"problem": "x", "gold": "1"}], (), "has no completions (found: problem, gold). Formats:"),
        ([{"prompt": "Q: 1+1", "completion": "2"}], (), "they have no gold; give the problems with their golds"),
        (
            [{"prompt": "Q: 1+1", "completion": "2"}],
            ("--pool", EXAMPLES / "problems.jsonl"),
            "1 of 1 rollouts are left out: their problems are not in the pool",
        ),
        (
            [{"problem": "1+1", "gold": "2", "completion": "2"}],
            (EXAMPLES / OTHERS[0], "--arm", "one"),
            "--arm one would mix several tools (file, lm-eval): give one --arm per file",
        ),
    ],
)
def test_what_cannot_be_taken_in_is_a_sentence(
    rows: list[dict[str, str]],
    words: tuple[str | Path, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    failed = command("import", "a.jsonl", "--root", "r", *words)
    assert isinstance(failed.exception, UserError)
    assert says in str(failed.exception)
    assert not Path("imported.toml").exists()


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
TRIES = [
    {"role": "assistant", "content": "3"},
    {"role": "user", "content": "No."},
    {"role": "assistant", "content": "2"},
]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"problem": "1+1?", "responses": ["2", "3"], "score": [1, 0.0]}, [("1+1?", "2", True), ("1+1?", "3", False)]),
        ({"problem": "1+1?", "outputs": ["2", "3"], "score": 0.5}, [("1+1?", "2", None), ("1+1?", "3", None)]),
        ({"prompt": CHAT, "completion": TRIES, "reward": 1.0}, [("1+1?", "2", True)]),
        ({"messages": [*CHAT, TRIES[-1]]}, [("1+1?", "2", None)]),
        ({"question": "1+1?", "response": {"choices": [{"message": TRIES[-1]}]}}, [("1+1?", "2", None)]),
        ({"question": "1+1?", "text": [{"type": "text", "text": "2"}]}, [("1+1?", "2", None)]),
    ],
)
def test_rows_with_lists_and_conversations_are_read(
    row: dict[str, object], expected: list[tuple[str, str, bool | None]], tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    assert [(r.problem, r.completion, r.correct) for r in read_rollouts(tmp_path / "a.jsonl")[1]] == expected


def test_an_arm_may_have_dots_several_files_or_the_name_of_a_built_in_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("files").mkdir()
    for n in (1, 2):
        rows = [
            {"problem": f"{n}+{n}?", "gold": 2 * n, "text": "#### 4", "model": name} for name in ("gpt-4.1", "panel")
        ]
        Path(f"files/{n}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = json.loads(command("import", "files/1.jsonl", "--root", "r", "--json").stdout)
    assert [(one["arm"], one["correct"]) for one in done["entered"]] == [("gpt-4.1", 0), ("imported-panel", 0)]
    done = json.loads(command("import", "files", "--arm", "x", "--name", "x", "--json").stdout)
    assert [(one["arm"], one["rollouts"], one["correct"]) for one in done["entered"]] == [("x", 4, 2)]
    assert "several files have this arm" in str(command("import", "files", "--name", "y").exception)
    assert not [*Path().glob("y*")]


OTHER_VERSION = "is damaged, or has a version that Varband cannot read"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("# Their rollouts", r"line 1: this is not JSON .* Formats: JSONL, CSV or Parquet with .* of inspect"),
        ('{"traces": 1}', OTHER_VERSION),
        ('{"doc": {}, "resps": []}', OTHER_VERSION),
        ('{"traces": [{"nodes": [{"sampled": 1}]}]}', OTHER_VERSION),
    ],
)
def test_a_file_that_cannot_be_read_is_a_sentence(line: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(UserError, match=words):
        read_rollouts(tmp_path / "a.jsonl")


def test_half_a_character_does_not_end_an_import(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"completion": "7 \\ud83d", "problem": "3 \\ud83d + 4", "gold": "7"}\n')
    [one] = read_rollouts(tmp_path / "a.jsonl")[1]
    assert (one.completion, one.problem) == ("7 ?", "3 ? + 4")


def test_a_csv_file_is_read(tmp_path: Path) -> None:
    rows = ["completion,gold,correct,num_tokens,token_ids", ",2,False,0,", '2,2,True,12.0,"[5, 6]"', "3,2,0.5,nan,?"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    found = [(r.completion, r.gold, r.correct, r.num_tokens, r.token_ids) for r in read_rollouts(tmp_path / "a.csv")[1]]
    assert found == [("", "2", False, 0, ()), ("2", "2", True, 12, [5, 6]), ("3", "2", None, None, ())]
