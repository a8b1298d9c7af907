"""MPNet without padding: texts lie one after the other, and only attention knows where each begins.

A plain forward pass fills every batch up to its longest text and writes its attention scores out. On a CPU that is
where its time goes beside the matrix products; here the products run over real tokens alone, in pieces that stay in
the cache, and attention is fused. The vectors are the same to rounding.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

#: Tokens of one pass: their inner activations (3,072 floats each) fit into a cache.
PACK_TOKENS = 768


def packable(model: Any) -> bool:
    """Is it a sentence-transformers model of MPNet, mean pooling and nothing else but a norm, on the CPU?"""
    names = [type(module).__name__ for module in model]
    if names[:2] != ["Transformer", "Pooling"] or set(names[2:]) - {"Normalize"} or model.device.type != "cpu":
        return False
    config, pooling = model[0].auto_model.config, model[1].pooling_mode
    return pooling == "mean" and config.model_type == "mpnet" and config.hidden_act == "gelu"


class PackedMpnet:
    """model: transformers' MPNetModel, whose weights are used as they are."""

    def __init__(self, model: Any, max_tokens: int) -> None:
        import torch

        self.embeddings, self.heads = model.embeddings, model.config.num_attention_heads
        self.first_position = model.config.pad_token_id + 1
        self.layers = []
        with torch.inference_mode():
            for layer in model.encoder.layer:
                a = layer.attention.attn
                weight = torch.cat([a.q.weight, a.k.weight, a.v.weight])
                bias = torch.cat([a.q.bias, a.k.bias, a.v.bias])
                self.layers.append(
                    (
                        weight,
                        bias,
                        a.o,
                        layer.attention.LayerNorm,
                        layer.intermediate.dense,
                        layer.output.dense,
                        layer.output.LayerNorm,
                    )
                )
            shape = torch.zeros(1, max_tokens, model.config.hidden_size)
            self.bias_1HTT = model.encoder.compute_position_bias(shape).contiguous()

    def means(self, texts: list[Tensor]) -> Tensor:
        """(N, D) mean of the last hidden states of each text. texts: token ids, special ones included; those of one
        length should stand together."""
        import torch
        from torch.nn.functional import gelu, layer_norm, linear

        def normed(x: Tensor, norm: Any) -> Tensor:
            return layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)

        sizes = [len(ids) for ids in texts]
        runs = [(size, len(list(same))) for size, same in groupby(sizes)]
        at = torch.cat([torch.arange(self.first_position, self.first_position + size) for size in sizes])
        e = self.embeddings
        x = normed(e.word_embeddings.weight[torch.cat(texts)] + e.position_embeddings.weight[at], e.LayerNorm)
        for weight, bias, out, norm, inner, outer, last in self.layers:
            seen = self._attended(linear(x, weight, bias), runs)
            x = normed(linear(seen, out.weight, out.bias).add_(x), norm)
            x = normed(linear(gelu(linear(x, inner.weight, inner.bias)), outer.weight, outer.bias).add_(x), last)
        return torch.stack([part.mean(dim=0) for part in x.split(sizes)])

    def _attended(self, qkv: Tensor, runs: list[tuple[int, int]]) -> Tensor:
        """Every token attends to its own text alone. runs: (length, how many texts of it), in order."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        start, width, parts = 0, qkv.shape[1] // 3, []
        for size, count in runs:
            rows = qkv[start : start + size * count].view(count, size, 3, self.heads, width // self.heads)
            q, k, v = rows.permute(2, 0, 3, 1, 4)
            bias = self.bias_1HTT[:, :, :size, :size]
            seen = scaled_dot_product_attention(q, k, v, attn_mask=bias)
            parts.append(seen.transpose(1, 2).reshape(count * size, width))
            start += size * count
        return torch.cat(parts)
