"""Arms that are not trained, sampled from a server that returns text without token ids and log-probs."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import Ledger
from storage.records.runs import all_runs
from storage.sql import query
from tasks.engines.hardware import Hardware
from tasks.engines.protocols import Decoding, Request
from tasks.engines.sampling.openai import TextGenerator
from tests import mini, warm
from tests.servers import text_provider

MESSAGES = [{"role": "user", "content": "2 + 3"}]
STUDY = """\
base = "demo"
seeds = []
[hardware]
arms_at_once = 1
[pool]
synthetic = 16
heldout_per_source = 4
[screening]
group_size = 4
[final]
group_size = 4
[evaluation]
group_size = 2
[passk]
ks = [1, 2, 4]
draws = 200
{rest}
[arms.panel]
[arms.top]
scaffold = "plain"
model = "served:lab/gpt-9"
trained_as = "{trained}"
[scaffolds.plain]
template = "Solve. {{problem}}"
trace_tag = "none"
answer_form = "final"
stop = []
"""


def study(folder: Path, trained: str = "none", rest: str = "") -> Path:
    path = folder / "ceiling.toml"
    path.write_text(STUDY.format(trained=trained, rest=rest))
    return path


def request(prompt: Any, **how: Any) -> Request:
    return Request(0, (), 7, Decoding(max_tokens=5, **how), prompt)


@pytest.mark.parametrize(
    ("chat_only", "refuses", "prompt", "path", "sent"),
    [
        (False, (), "2 + 3", "/v1/completions", {"prompt", "max_tokens", "temperature", "top_p", "seed"}),
        (False, (), MESSAGES, "/v1/chat/completions", {"messages", "max_tokens", "temperature", "top_p", "seed"}),
        (True, ("max_tokens", "seed"), "2 + 3", "/v1/chat/completions",
         {"messages", "max_completion_tokens", "temperature", "top_p"}),
        (True, ("temperature", "top_p"), MESSAGES, "/v1/chat/completions", {"messages", "max_tokens", "seed"}),
    ],
)  # fmt: skip
def test_a_server_gets_the_form_that_it_takes(
    chat_only: bool, refuses: tuple[str, ...], prompt: Any, path: str, sent: set[str]
) -> None:
    """A completion ends at its stop string or after five words, and its tokens are those of `usage`."""
    with text_provider(lambda _: "so <answer> 5 </answer> and more", chat_only=chat_only, refuses=refuses) as (
        url,
        got,
    ):
        generator = TextGenerator("lab/gpt-9", Hardware(endpoint=url))
        [stopped] = generator.generate([request(prompt, stop=("</answer>",))], None)
        [cut] = generator.generate([request(prompt)], None)
    assert {(p, *sorted({*body} - {"model"})) for p, body in got} == {(path, *sorted(sent))}
    assert (stopped.text, stopped.finish, stopped.counted) == ("so <answer> 5 </answer>", "stop", (3, 5))
    assert (cut.text, cut.finish, cut.token_ids, cut.logprobs_T.size) == (
        "so <answer> 5 </answer> and",
        "length",
        [],
        0,
    )
    assert generator.version == "gpt-9-2026"


def test_what_would_change_the_distribution_is_not_left_out() -> None:
    with text_provider(lambda _: "5", refuses=("temperature",)) as (url, _):
        generator = TextGenerator("gpt-9", Hardware(endpoint=url))
        with pytest.raises(UserError, match="'temperature' is not supported"):
            list(generator.generate([request("2 + 3", temperature=0.5)], None))


def solve(body: dict[str, Any]) -> str:
    """Add the numbers of a problem, also those that it takes away: problems without `Take` are right."""
    return f"I add them all.\n#### {sum(map(int, re.findall('[0-9]+', body['messages'][0]['content'])))}"


@pytest.mark.slow
def test_a_closed_model_is_a_ceiling_beside_an_open_one(tmp_path: Path) -> None:
    """The arm is graded, paid by the tokens that the server counts, and compared with an arm that is sampled here."""
    root = tmp_path / "store"
    with text_provider(solve, chat_only=True, refuses=("max_tokens",)) as (url, answered):
        shell = mini.environment() | {"VARBAND_OPENAI_BASE_URL": url}

        def run(*more: str) -> Any:
            words = [warm.VARBAND, "run", str(study(tmp_path)), "--json", "--root", str(root), *more]
            return warm.run(words, cwd=tmp_path, env=shell, engine=True)

        unpriced = run("--budget", "usd=5")
        assert unpriced.returncode == 2 and 'write [remote."127.0.0.1"]' in unpriced.stderr
        root.mkdir(exist_ok=True)
        (root / "prices.toml").write_text('[remote."127.0.0.1"]\nprompt = 10\ncompletion = 1000\n')
        parked = run("--budget", "usd=0.1")
        assert parked.returncode == 75, parked.stdout + parked.stderr
        done = run("--budget", "usd=5")
        assert done.returncode == 0, done.stderr
        asked_for = len(answered)
    ledger, store = Ledger(root), Store(root)
    rows = pa.concat_tables([ledger.read(a) for a, about in ledger.accounts() if about["model"] == "gpt-9"])
    assert rows.num_rows == asked_for, "every answer is stored, and nothing was asked twice"
    counted = query(
        "select sum(num_prompt_tokens)::int as read, sum(num_tokens)::int as wrote, count(logprob_sum) as scored,"
        " count_if(correct) as right from t", t=rows,
    ).to_pylist()[0]  # fmt: skip
    assert counted["wrote"] == 5 * asked_for and counted["scored"] == 0 and counted["right"] > 0
    [run_record] = all_runs(root)
    assert run_record.spent.usd == pytest.approx((10 * counted["read"] + 1000 * counted["wrote"]) / 1e6)
    [report] = store.refs("report")
    by_arm = {row["arm"]: row for row in store.read(report).to_pylist()}
    assert by_arm.keys() == {"panel", "top"} and by_arm["top"]["tokens_per_correct"] is not None


@pytest.mark.parametrize(
    ("trained", "rest", "says"),
    [
        ("top", "", 'served:lab/gpt-9 returns no token ids and log-probs to train on; write trained_as = "none"'),
        ("none", '[search]\nmethods = ["likeliest"]\ntokens = 4096', "method likeliest needs token ids and log-probs"),
    ],
)
def test_what_needs_token_ids_is_refused_by_name(trained: str, rest: str, says: str, tmp_path: Path) -> None:
    words = [warm.VARBAND, "plan", str(study(tmp_path, trained, rest)), "--root", str(tmp_path / "store")]
    done = warm.run(words, cwd=tmp_path, env=mini.environment())
    assert done.returncode == 2 and says in done.stderr, done.stderr
