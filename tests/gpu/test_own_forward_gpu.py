"""The learner against the model's own forward pass where it runs in bfloat16 by fused kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import UserError
from tasks.engines.learning import attention
from tasks.engines.learning.policy import Execution, Policy
from tests.engines.learning.test_own_forward import APART, LEARNER
from tests.gpu.test_sampling_gpu import WIDE
from tests.tiny_model import DEMO, write_tiny_mixture, write_tiny_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("merged", [False, True])
def test_rounding_is_no_other_policy(tmp_path: Path, temperature: float, merged: bool) -> None:
    models = [DEMO, write_tiny_mixture(tmp_path / "mixture", **WIDE)]
    models += [
        write_tiny_of(kind, tmp_path / f"{kind}-{large}", lambda weight, large=large: weight * large)
        for kind in ("llama", "qwen2", "qwen3", "qwen3_moe")
        for large in (1.0, 6.0)
    ]
    for base in models:
        Policy(base, LEARNER, Execution(device="cuda", merged=merged), temperature)


def test_another_attention_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, attend = write_tiny_of("qwen3_moe", tmp_path / "base"), attention._variable_length
    monkeypatch.setattr(attention, "_variable_length", lambda q, k, v, scaling, at: attend(q, k, v, scaling / 2, at))
    with pytest.raises(UserError, match=APART):
        Policy(base, LEARNER, Execution(device="cuda"), 1.0)
