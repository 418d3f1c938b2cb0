"""generate() of transformers, whose `forward` is served with the cache that it is given: tokens are eager's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch_support import counts, served

from hybrid_infer import inference

transformers = pytest.importorskip("transformers")

SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1, bos_token_id=1, eos_token_id=None, pad_token_id=0,
)  # fmt: skip


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def sliding() -> Any:
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, sliding_window=6))


def encoder_and_decoder() -> Any:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_ff=64, num_layers=1, num_heads=2, d_kv=16, decoder_start_token_id=0,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [llama, sliding, encoder_and_decoder])
def test_the_tokens_are_eagers(make: Any) -> None:
    torch.manual_seed(0)
    eager = make().eval()
    hot = inference(copy.deepcopy(eager))
    ids = torch.randint(2, 64, (2, 5))
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    for given in ({"do_sample": False}, {"do_sample": True}):
        told = {"attention_mask": mask, "max_new_tokens": 9, "pad_token_id": 0, **given}
        for _ in range(2):
            torch.manual_seed(1)
            expected = eager.generate(ids, **told)
            torch.manual_seed(1)
            assert torch.equal(hot.generate(ids, **told), expected)
    served(captures=counts("ForC")["captures"], part="ForC")
    assert counts("ForC")["captures"] <= 4 and counts("ForC")["hits"] >= 30


def test_a_cache_of_a_fixed_length_is_written_into() -> None:
    torch.manual_seed(0)
    eager = llama().eval()
    hot, ids = inference(copy.deepcopy(eager)), torch.randint(2, 64, (1, 5))
    told = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static"}
    assert torch.equal(hot.generate(ids, **told), eager.generate(ids, **told))
    served(captures=2, part="Llama")  # the prompt, and every step
    assert counts("Llama")["hits"] == 4
