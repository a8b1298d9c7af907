"""What arms stand on: models per arm, adapters made elsewhere, ceilings; said in a file, after --set, in a form."""

import json
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from flows.running.forecast import base_notes
from flows.running.plan import plan
from flows.study.forms import StudyForm
from flows.study.models import SHIPPED
from flows.study.request import Request
from storage.artifacts.store import Store
from storage.errors import UserError
from tasks.engines.adapter_files import adapter_files
from tasks.engines.model_files import weights_identity
from tests.tiny_model import adapter, another_model

CEILING = "[arms.panel]\n[arms.thinking]\nmodel = './other'\n[arms.top]\nscaffold = 'panel'\ntrained_as = 'none'\nmodel = './other'\n"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """other: a model of the demo's shape. fits: an adapter as the demo trains them; wide: of another rank and targets."""
    folder = tmp_path_factory.mktemp("elsewhere")
    another_model(folder / "other")
    adapter(folder / "fits", rank=16)
    adapter(folder / "wide", rank=32, targets=("q_proj", "v_proj"))
    return folder


def refs(request: Request, root: Path) -> dict[str, str]:
    store = Store(root)
    return {p.step.title: str(p.step.ref) for p in plan(request.study(store), store)}


def asked(*settings: str) -> Request:
    return Request(profile="demo", settings=settings)


def test_an_arms_model_changes_what_hangs_on_it_and_nothing_of_the_others(places: Path, tmp_path: Path) -> None:
    before, after = refs(asked(), tmp_path), refs(asked(f"arms.thinking.model={places}/other"), tmp_path)
    kept = {title for title, ref in before.items() if after[title] == ref}
    assert {"screen panel", "train panel seed 0", "evaluate panel at step 40 (final, 8 each)", "split pool"} <= kept
    assert not {"screen thinking", "train thinking seed 0", "render report"} & kept
    again = refs(asked(f"arms.thinking.model={shutil.copytree(places / 'other', tmp_path / 'same')}"), tmp_path)
    assert again["screen thinking"] == after["screen thinking"], (
        "a model is what its files hold, whatever its folder is called"
    )


def test_a_file_a_setting_and_a_form_say_the_same(places: Path, tmp_path: Path) -> None:
    settings = (f"arms.thinking.model={places}/other", "arms.thinking.trained_as=none")
    text = f"base = 'demo'\n[arms.panel]\n[arms.thinking]\nmodel = '{places}/other'\ntrained_as = 'none'\n"
    pairs = (one.partition("=") for one in settings)
    form = StudyForm.model_validate({"settings": [{"field": field, "value": value} for field, _, value in pairs]})
    studies = [asked(*settings), Request(profile="mine.toml", text=text), form.request()]
    assert len({json.dumps(refs(one, tmp_path)) for one in studies}) == 1


def test_a_ceiling_is_screened_and_evaluated_and_never_trained(places: Path, tmp_path: Path) -> None:
    (file := places / "mine.toml").write_text("base = 'demo'\n" + CEILING)
    study = Request(profile=str(file), text=file.read_text()).study(Store(tmp_path))
    steps = defaultdict(list)
    for one in plan(study, Store(tmp_path)):
        steps[one.step.ref.kind].append(one.step.title)
    assert {"screen top", "evaluate top at step 0 (final, 8 each)"} <= {*steps["rollouts"]}
    assert steps["training"] == ["train panel seed 0", "train thinking seed 0"]
    assert base_notes(study) == [
        "panel on demo, thinking on other, top on other: arms on different bases do not compare scaffolds alone",
        "evaluated as it is, never trained: top",
    ]


def test_an_adapter_on_another_base_is_told_with_its_line(places: Path, tmp_path: Path) -> None:
    """When the file is checked, which plans problems alone; untrained, there is no adapter."""
    arms = f"[arms.panel]\n[arms.top]\nscaffold = 'panel'\ntrained_as = 'panel'\nmodel = '{places}/other'\n"
    with pytest.raises(
        UserError, match=r"^mine\.toml, line 6: arms\.top\.model: arm top has the base model other .*works only with"
    ):
        Request(profile="mine.toml", text="base = 'demo'\n" + arms).study(Store(tmp_path), planning=True)
    assert Request(profile="mine.toml", text="base = 'demo'\nseeds = []\n" + arms).study(Store(tmp_path))


def test_an_adapter_made_elsewhere_is_started_from_or_evaluated_as_it_is(places: Path, tmp_path: Path) -> None:
    request = asked(
        f"arms.panel.adapter={places}/fits", f"arms.thinking.adapter={places}/wide", "arms.thinking.trained_as=none"
    )
    study, store = request.study(Store(tmp_path)), Store(tmp_path)
    steps = {p.step.title: p.step for p in plan(study, store)}
    imported = steps["adapter of panel"].ref
    assert steps["train panel seed 0"].recipe.inputs["init"] == [str(imported)]
    assert steps["screen panel"].arguments["policy"].adapter == str(imported)
    assert (
        steps["evaluate thinking at step 0 (final, 8 each)"].arguments["training"] == steps["adapter of thinking"].ref
    )
    assert set(study.ranks.values()) == {32}
    moved = shutil.copytree(places / "fits", tmp_path / "moved")
    assert refs(asked(f"arms.panel.adapter={moved}"), tmp_path)["adapter of panel"] == str(imported)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["arms.panel.adapter={}/wide"],
            r"wide differs .* lora_rank 32 and not 16; lora_alpha 32 .*; target_modules q_proj,v_proj",
        ),
        (
            ["arms.panel.adapter={}/fits", "arms.no_panel.adapter={}/fits"],
            "no_panel is evaluated with the adapter of panel",
        ),
        (
            ["arms.panel.trained_as=none", "arms=panel,no_panel"],
            "panel does not train, it is evaluated without training",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    settings: list[str], said: str, places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # which it reads as it is imported
    with pytest.raises(UserError, match=said) as refused:
        asked(*(one.format(places) for one in settings)).study(Store(tmp_path))
    assert "\n" not in str(refused.value) and not [*tmp_path.iterdir()]


def renamed(adapter: Path, folder: Path, old: str, new: str) -> Path:
    from safetensors.torch import load_file, save_file

    shutil.copytree(adapter, folder)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file({name.replace(old, new): w for name, w in weights.items()}, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("model.layers", "language_model.layers", "has no such layer"),
        ("model.layers.0.self_attn.q_proj", "lm_head", "is not one of a layer's two LoRA matrices"),
    ],
)
def test_an_adapter_with_names_that_an_engine_would_leave_out(
    places: Path, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """transformers serves the base model in its place, without a word."""
    narrow = adapter(tmp_path / "narrow", rank=16, hidden=8)
    with pytest.raises(UserError, match=r"q_proj is 8 x 8, but \d+ x \d+ in .*demo"):
        adapter_files(narrow).check_base(SHIPPED["demo"])
    with pytest.raises(UserError, match=problem):
        adapter_files(renamed(places / "fits", tmp_path / "other names", old, new)).check_base(SHIPPED["demo"])


def test_an_adapter_knows_its_base(places: Path, tmp_path: Path) -> None:
    base, folder = SHIPPED["demo"], shutil.copytree(places / "fits", tmp_path / "marked")
    mark = {"name": "demo", "weights_identity": weights_identity(base)}
    (folder / "base_model.json").write_text(json.dumps(mark))
    adapter_files(folder).check_base(base)
    with pytest.raises(UserError, match=r"was trained on demo, but .*other has other weights"):
        adapter_files(folder).check_base(places / "other")


def test_an_adapter_of_another_kind(places: Path, tmp_path: Path) -> None:
    config = json.loads((shutil.copytree(places / "fits", tmp_path / "odd") / "adapter_config.json").read_text())
    (tmp_path / "odd" / "adapter_config.json").write_text(json.dumps(config | {"init_lora_weights": "pissa"}))
    with pytest.raises(UserError, match=r"init_lora_weights=.* merge the adapter into a model, or convert"):
        adapter_files(tmp_path / "odd")
