"""Mixtures of experts: products of groups of rows, each with a matrix of its own, also where a group is empty."""

from __future__ import annotations

import pytest
import torch
from torch_support import same, served

from hybrid_infer import inference


class Experts(torch.nn.Module):
    def __init__(self, experts: int = 3) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(experts, 16, 8, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grouped_mm(x, self.weight.transpose(1, 2), offs=ends)


def test_groups_of_rows_have_a_matrix_each() -> None:
    eager = Experts().eval()
    hot = inference(Experts())
    hot.load_state_dict(eager.state_dict())
    with torch.no_grad():
        for ends in ([2, 3, 8], [0, 0, 8], [8, 8, 8], [1, 1, 6], [3, 9, 12]):
            x = torch.randn(ends[-1], 8, dtype=torch.bfloat16)
            given = torch.tensor(ends, dtype=torch.int32)
            same(hot(x, given), eager(x, given), 4e-2)
    served(captures=2, part="Experts")


def test_a_mixture_of_transformers_is_served() -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformers.integrations.moe")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2, head_dim=8, use_cache=False,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config).eval()
    calls = [torch.randint(0, 64, size) for size in ((2, 5), (3, 7), (4, 2))]
    with torch.no_grad():
        expected = [model(ids).logits for ids in calls]
        hot = inference(model)
        for ids, logits in zip(calls, expected, strict=True):
            same(hot(ids).logits, logits, 1e-4)
    served(captures=2, part="MixtralForC")
