"""Log-probs of sampled tokens by this project's kernel, against float64 and against vLLM's."""

import pytest
import torch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("rows", [1, 7, 128, 1024])
@pytest.mark.parametrize("vocabulary", [31, 8192, 8193, 151_936])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_shared_out_give_what_float64_gives(rows: int, vocabulary: int, dtype: torch.dtype) -> None:
    from tasks.engines.kernels import token_logprobs

    draw = torch.Generator("cuda").manual_seed(rows + vocabulary)
    logits = (torch.randn(rows, vocabulary + 5, generator=draw, device="cuda") * 6 - 200).to(dtype)[:, :vocabulary]
    tokens = torch.randint(0, vocabulary, (rows,), generator=draw, device="cuda")
    # most tokens may not be sampled, whole chunks among them
    logits[:, : vocabulary // 2] = float("-inf")
    tokens = torch.clamp(tokens, min=vocabulary // 2)
    exact = logits.double().log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    found = token_logprobs(logits, tokens)
    assert found.dtype == torch.float32
    # as near as float32 can say a number of this size
    assert ((found - exact).abs() <= 2e-6 * exact.abs().clamp(min=1)).all()


def test_they_are_vllms_own() -> None:
    from vllm.v1.worker.gpu.sample.logprob import compute_token_logprobs

    from tasks.engines.kernels import token_logprobs

    draw = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(512, 151_936, generator=draw, device="cuda") * 4
    tokens = torch.multinomial(logits.softmax(-1), 1, generator=draw)[:, 0]
    theirs = compute_token_logprobs(logits, tokens[:, None])[:, 0]
    assert (token_logprobs(logits, tokens) == theirs).all()
