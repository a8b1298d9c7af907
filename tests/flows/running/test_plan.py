"""`varband plan`: every study by name, what each stage will cost, and what is there already."""

from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pytest

from flows.running.costs import CHARACTERS, FILL, PROBLEM, Cost, costs, likely_length
from flows.running.plan import plan
from flows.study.prices import prices_of
from flows.study.profile import Lesson, Profile, Search
from flows.study.profiles import DEMO, QWEN_1_5B
from flows.study.request import Request
from flows.study.resolve import PoolInputs, Study, resolve
from storage.artifacts.store import Store
from storage.errors import UserError
from storage.ledger import LEDGER, Ledger
from tasks.domain.budget import Prices, TokenPrice
from tasks.domain.policies import BaseModel, Policy, Sampling
from tasks.domain.problems.sources import SourceSpec
from tasks.domain.scaffolds import ARMS, PANEL, Example, Message, Scaffold
from tasks.rollouts import account_of
from tasks.stage import Step
from tests import mini
from tests.plugged import install
from tests.stages.test_regrading import ROWS

MODEL = BaseModel(name="a model", sha256="c" * 64)
#: Tokens of a prompt and of a completion of at most 1024, until lengths are measured.
PROMPT, COMPLETION = (len(PANEL.prompt("")) + PROBLEM) / CHARACTERS, FILL[1] * 1024
LINES = 40
PLAIN = replace(
    QWEN_1_5B, lessons=(), benchmarks=(), arms=("panel",), pool=replace(QWEN_1_5B.pool, sources=("aime24", "aime25"))
)


def study_of(profile: Profile, folder: Path) -> Study:
    """The profile as if its inputs were here: every source is a file of LINES lines, of a level each of five."""
    places: dict[str, Path] = {}

    def found(names: tuple[str, ...], digit: str = "e") -> PoolInputs:
        specs = tuple(SourceSpec(name, f"{i:x}".rjust(64, digit)) for i, name in enumerate(names))
        for spec in specs:
            lines = (f'{{"problem": "{spec.name} {i}?", "gold": "1", "level": {1 + i % 5}}}\n' for i in range(LINES))
            (file := folder / f"{spec.name}.jsonl").write_text("".join(lines))
            places[spec.sha256] = file
        return PoolInputs(specs)

    lessons: dict[str, Lesson] = {lesson.name: lesson for lesson in profile.lessons}
    pools = {"": found(profile.pool.sources)} | {name: found(x.pool.sources) for name, x in lessons.items()}
    benchmarks = {b.name: found(b.sources, "b") for b in profile.benchmarks}
    return Study(profile, dict.fromkeys(profile.known_arms, MODEL), pools, "d" * 64, places, benchmarks)


def priced(profile: Profile, folder: Path, prices: Prices | None = None) -> list[tuple[str, Cost]]:
    folder.mkdir(exist_ok=True)
    store, study = Store(folder), study_of(profile, folder)
    store.prepare()
    planned = plan(study, store)
    each = costs(study, store, planned, prices or prices_of(profile.name))
    return [(step.step.title, cost) for step, cost in zip(planned, each, strict=True)]


def test_a_stage_costs_its_rollouts_times_their_length(tmp_path: Path) -> None:
    """80 problems × 8 rollouts = 640, each of PROMPT and COMPLETION tokens, until lengths are measured."""
    prices = Prices(tokens={"*": TokenPrice(1.0, 10.0)}, sampled_per_second=1000)
    screen = dict(priced(PLAIN, tmp_path, prices))["screen panel"]
    assert (screen.rollouts, screen.rollouts_reused) == (640, 0)
    assert screen.tokens == pytest.approx(640 * (PROMPT + COMPLETION))
    assert screen.usd == pytest.approx(640 * (PROMPT * 1 + COMPLETION * 10) / 1e6)
    assert screen.gpu_hours == pytest.approx(640 * (PROMPT + COMPLETION) / 1000 / 3600)


@pytest.mark.parametrize(
    ("arm", "model", "max_tokens", "basis"),
    [
        ("panel", MODEL.name, 1024, "measured"),
        ("panel", MODEL.name, 64, "guessed"),
        ("thinking", MODEL.name, 1024, "guessed"),
        ("panel", "another", 1024, "guessed"),
        ("thinking", "another", 1024, None),
    ],
)
def test_lengths_are_those_of_what_is_most_alike(
    arm: str, model: str, max_tokens: int, basis: str | None, tmp_path: Path
) -> None:
    """Of completions of 20 and of 100 tokens under max_tokens 1024: a limit of 64 cuts the longer ones."""
    policy, sampling = Policy(arm="panel", model=MODEL), Sampling(max_tokens=1024, seed=1)
    lacking = {"gold": "1", "request_seed": 0, "prompt_ids": [], "token_ids": [], "logprobs": [], "engine": "none"}
    row = ROWS.to_pylist()[0] | lacking | {"num_prompt_tokens": 9}
    rows = [row | {"problem_id": f"p{n}", "num_tokens": n} for n in (20, 100)]
    told = {"arm": "panel", "model": MODEL.name, "max_tokens": 1024}
    Ledger(tmp_path).append(account_of(policy, sampling), pa.Table.from_pylist(rows, schema=LEDGER), told)
    found = likely_length(Ledger(tmp_path), arm, model, max_tokens)
    assert (found and found.basis) == basis
    if found:
        longest = min(max_tokens, 100)
        assert (found.prompt, found.completion) == (9, (20 + longest) / 2)
        assert 20 <= found.low < found.completion < found.high <= longest


def test_a_search_is_priced_by_what_its_methods_ask_for(tmp_path: Path) -> None:
    """Of rollouts of the problems themselves `final` promises all; a beam of 2 × 2 for 3 steps, scored by the policy, asks for 24 completions of prompts that hold two earlier ones; a budget
    stops both."""
    wide = replace(PLAIN, search=Search(methods=("majority:width=8", "beam:beams=2:expand=2:depth=3"), tokens=10**9))
    found = {title: cost for title, cost in priced(wide, tmp_path) if "step 0" in title}
    asked = {title.partition(":")[0]: cost for title, cost in found.items() if "panel" in title}
    own, steps = asked["majority"], asked["beam"]
    problems = own.rollouts_reused // 8
    assert problems > 0 and own.rollouts == 0, "`final` asks for as many"
    assert steps.rollouts == 24 * problems
    assert steps.tokens == pytest.approx(steps.rollouts * (PROMPT + 3 * COMPLETION))
    poor = replace(wide, search=replace(wide.search, tokens=5000))
    stopped = {title.partition(":")[0]: cost for title, cost in priced(poor, tmp_path) if "panel at step 0" in title}
    assert stopped["beam"].tokens < steps.tokens and stopped["beam"].tokens >= 5000 * problems


def test_what_the_ledger_holds_is_not_paid_for_again(tmp_path: Path) -> None:
    """100 of the 640 are there, of 10 + 20 tokens each: those lengths are taken for the others."""
    draw = PLAIN.screening
    account = account_of(Policy(arm="panel", model=MODEL), draw.sampling)
    rows = pa.table(
        {
            "problem_id": [f"p{i // 8}" for i in range(100)],
            "rollout": pa.array([i % 8 for i in range(100)], pa.int32()),
            "num_prompt_tokens": [10] * 100,
            "num_tokens": [20] * 100,
        }
    )
    Ledger(tmp_path).append(account, rows, {"arm": "panel", "max_tokens": draw.sampling.max_tokens})
    screen = dict(priced(PLAIN, tmp_path))["screen panel"]
    assert (screen.rollouts, screen.rollouts_reused, screen.basis) == (540, 100, "measured")
    assert screen.tokens == 540 * 30


def test_a_step_has_no_more_groups_than_there_are_problems_in_the_band(demo_store: Path) -> None:
    """One step without evaluations, of which each group has two rollouts."""
    store = Store(demo_store)
    shape = ("steps=1", "eval_every=1", "group_size=2", "groups_per_step=1000")
    settings = (*mini.SETTINGS, *(f"training.{one}" for one in shape), "evaluation.group_size=1", "arms=panel")
    study = Request(profile="demo", settings=settings).study(store)
    planned = plan(study, store)
    (bands,) = (p.step.ref for p in planned if p.step.ref.kind == "bands" and p.reused)
    train = {r["problem_id"] for r in store.read(store.refs("splits")[0]).to_pylist() if r["split"] == "train"}
    live = {r["problem_id"] for r in store.read(bands).to_pylist() if r["band"] == "variance"} & train
    each = costs(study, store, planned, Prices())
    (cost,) = (one for one, p in zip(each, planned, strict=True) if p.step.ref.kind == "training")
    heldout = store.read(store.refs("splits")[0]).num_rows - len(train)
    assert 0 < len(live) < len(train) and cost.rollouts == 2 * len(live) + heldout


# A price needs no weights and no data: what is not here is said, and everything that hangs on it is to be made.


def test_what_is_here_keeps_its_name_and_a_run_still_asks_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARBAND_MODELS", str(tmp_path))
    store, request = Store(tmp_path / "store"), Request(profile="demo", settings=("arms.thinking.model=elsewhere",))
    whole = {p.step.title: p.step.ref for p in plan(Request(profile="demo").study(store), store)}
    lacking = {p.step.title: p.step.ref for p in plan(request.study(store, planning=True), store)}
    assert lacking["screen panel"] == whole["screen panel"] and lacking["screen thinking"] != whole["screen thinking"]
    with pytest.raises(UserError, match=r"^--set arms.thinking.model: base model elsewhere is not there"):
        request.study(store)


# What an artifact's name depends on: everything that changes it, and nothing else. By plans alone; nothing is made.


PROFILE = replace(DEMO, arms=("panel", "thinking", "no_panel"))


def steps(root: Path, model: Path | None = None) -> list[Step]:
    """What a run into this folder would take, one after the other."""
    study = resolve(replace(PROFILE, model=str(model)) if model else PROFILE, Store(root))
    return [planned.step for planned in plan(study, Store(root))]


#: Another value of every field of a scaffold; a field without an entry fails the test below by its name.
REWORDED = {
    "name": "another",
    "template": "Discuss among experts. {problem}",
    "trace_tag": "debate",
    "answer_form": "boxed",
    "stop": ("</answer>", "</debate>"),
    "chat": True,
    "enable_thinking": True,
    "trace_opened": True,
    "examples": (Example(problem="1+1?", trace="one and one", answer="2"),),
    "answer_kind": "integer",
    "code": "reversed@lab-tasks==1.0",
    "system": "Think in steps.",
    "messages": (Message(role="user", content="Solve {problem}"),),
}
#: What compares arms, and so depends on every one of them.
COMPARING = {
    *("audit_designs", "compare_diversity", "compare_gains", "compare_solved", "contrast_pass_at_k", "cross_bands"),
    *("estimate_pass_at_k", "measure_ceilings", "measure_tokens", "measure_votes", "render_report", "training_curves"),
}


@pytest.mark.parametrize("name", [f.name for f in fields(Scaffold)])
@pytest.mark.parametrize("arm", ["panel", "no_panel"])
def test_a_reworded_scaffold_remakes_what_depends_on_it(
    arm: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panel's: all of its own, and of no_panel what is evaluated with the panel's adapter. no_panel's: its own
    rollouts alone, for it trains nothing."""
    if name == "code":
        monkeypatch.syspath_prepend(str(install(tmp_path)))
    before = steps(tmp_path)
    scaffold = ARMS[arm].scaffold
    assert getattr(scaffold, name) != REWORDED[name]
    monkeypatch.setitem(ARMS, arm, replace(ARMS[arm], scaffold=replace(scaffold, **{name: REWORDED[name]})))
    after = steps(tmp_path)
    anew = [b.ref != a.ref for b, a in zip(before, after, strict=True)]
    assert anew == [depends(step, arm, before) for step in before]
    stages = {step.recipe.stage for step, changed in zip(before, anew, strict=True) if changed}
    assert stages >= COMPARING and ("train_adapter" in stages) == (arm == "panel")


def depends(step: Step, arm: str, others: list[Step]) -> bool:
    """Whether a step is of this arm's policy, of a training of it, or made from something that is."""
    policy = step.arguments.get("policy") or step.arguments.get("start")
    if policy is not None and policy.arm == arm:
        return True
    made_from = {ref for refs in step.recipe.inputs.values() for ref in refs}
    return any(depends(other, arm, others) for other in others if str(other.ref) in made_from)
