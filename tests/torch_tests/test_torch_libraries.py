"""What a program puts in the place of functions and methods of an installed package that a model comes from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support import counts

from hybrid_infer import inference, reset_stats

transformers = pytest.importorskip("transformers")
from transformers.models.llama import modeling_llama  # noqa: E402

pytestmark = pytest.mark.torch
IDS = torch.arange(9)[None]


def _model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    return transformers.LlamaForCausalLM(config).eval()


def _rotary(patch: pytest.MonkeyPatch) -> None:
    plain = modeling_llama.apply_rotary_pos_emb

    def mine(q: Any, k: Any, *args: Any, **kwargs: Any) -> Any:
        q, k = plain(q, k, *args, **kwargs)
        return q * -2, k

    patch.setattr(modeling_llama, "apply_rotary_pos_emb", mine)


def _method(patch: pytest.MonkeyPatch) -> None:
    plain = modeling_llama.LlamaMLP.forward
    patch.setattr(modeling_llama.LlamaMLP, "forward", lambda self, x: plain(self, x) * 2)


def _of_another_package(patch: pytest.MonkeyPatch) -> None:
    from transformers.models.gpt_neox import modeling_gpt_neox

    def half(x: Any) -> Any:
        return modeling_gpt_neox.rotate_half(x) * 0.5

    patch.setattr(modeling_llama, "rotate_half", half)


def _no_function(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(modeling_llama, "rotate_half", torch.neg)


def _partial(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(modeling_llama, "rotate_half", functools.partial(torch.mul, other=3.0))


class Called:
    def __call__(self, x: Any) -> Any:
        return x * 5.0


def _object(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(modeling_llama, "rotate_half", Called())


PATCHES = [_no_function, _partial, _object, _rotary, _method, _of_another_package]


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def _difference(model: Any, expected: Any) -> float:
    with torch.no_grad():
        return float((model(input_ids=IDS, use_cache=False).logits - expected).abs().max())


def _expected() -> Any:
    with torch.no_grad():
        return _model()(input_ids=IDS, use_cache=False).logits


@pytest.mark.parametrize("change", PATCHES, ids=lambda change: change.__name__)
def test_it_is_seen_between_calls_and_between_programs(
    change: Callable[[pytest.MonkeyPatch], None], patch: pytest.MonkeyPatch
) -> None:
    """Another instance is as another process: it goes by the key alone."""
    model, plain = inference(_model()), _expected()
    assert max(_difference(model, plain) for _ in range(2)) < 1e-5
    change(patch)
    changed = _expected()
    assert float((plain - changed).abs().max()) > 1e-4
    assert max(_difference(each, changed) for each in (model, model, inference(_model()))) < 1e-5
    patch.undo()
    assert max(_difference(each, plain) for each in (model, model, inference(_model()))) < 1e-5
    assert counts("CausalLM")["captures"] == 2


def test_one_partial_for_another(patch: pytest.MonkeyPatch) -> None:
    for factor in (3.0, 4.0, 3.0):
        patch.setattr(modeling_llama, "rotate_half", functools.partial(torch.mul, other=factor))
        assert _difference(inference(_model()), _expected()) < 1e-5
    assert counts("CausalLM")["captures"] == 2


def test_nothing_is_captured_anew_where_nothing_was_replaced() -> None:
    plain = _expected()
    for _ in range(2):
        assert _difference(inference(_model()), plain) < 1e-5
    assert counts()["captures"] == 1
    reset_stats()
