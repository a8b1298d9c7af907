"""What vLLM loads of a model folder. In a process without another engine, whose state would end with this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import AutoTokenizer

from tasks.engines.hardware import Hardware
from tasks.engines.model_files import model_digest

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"


@pytest.mark.slow
def test_vllm_reads_the_files_that_a_model_is_known_by(tmp_path: Path) -> None:
    """Mistral's folders hold each thing twice; left to itself vLLM takes the copies, which are no part of the model."""
    from tasks.engines.sampling.vllm import VllmGenerator

    folder = Path(shutil.copytree(DEMO, tmp_path / "model"))
    shard = (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(shard), shard.name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    before = model_digest(folder)
    shutil.copy(shard, folder / "consolidated.safetensors")
    for name in ("params.json", "tokenizer.model.v3"):
        (folder / name).write_text("{}")
    assert model_digest(folder) == before
    made = VllmGenerator(folder, Hardware(kv_cache_mb=64), 0)
    asked = "1 + 1 ="
    known = AutoTokenizer.from_pretrained(DEMO)(asked, add_special_tokens=False)["input_ids"]
    assert list(made.encode(asked, chat=False, enable_thinking=False)) == known
    made.close()
