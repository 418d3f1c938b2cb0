"""Attention layers are served as torch computes them eagerly: by its fused kernels where no gradient is recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch_support import counts, same, served

from hybrid_infer import inference

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")]

N, L, E, HEADS = 3, 6, 16, 4
NONE = torch.zeros(N, L, dtype=torch.bool)
END, LEFT, WHOLE, BOTH, SHORT = (NONE.clone() for _ in range(5))
END[1, 4:] = True
LEFT[0, 0] = True
WHOLE[1, 4:], WHOLE[2] = True, True
BOTH[0, 0], BOTH[2] = True, True
SHORT[:, 5], SHORT[1, 2:] = True, True
PADDINGS = {"none": NONE, "at the end": END, "at the start": LEFT, "a whole sequence": WHOLE, "both": BOTH,
            "of all at the end": SHORT}  # fmt: skip
CAUSAL = nn.Transformer.generate_square_subsequent_mask(L)
BLIND = torch.zeros(L, L, dtype=torch.bool)
BLIND[0] = True


def _encoder(norm: bool = False, nested: bool = True, **settings: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, HEADS, 32, batch_first=True, **settings)
    last = nn.LayerNorm(E) if norm else None
    if last is not None:
        nn.init.ones_(last.bias)
    return nn.TransformerEncoder(layer, 2, last, enable_nested_tensor=nested).eval()


def _alike(eager: Callable[..., Any], *calls: tuple[Any, ...], captures: int = 1, **options: Any) -> None:
    """The first call is captured, the others are served by the same graph."""
    options = {"verify": "off", "fallback": "error", "backend": "onnxruntime"} | options
    hot = inference(eager, **options)
    with torch.no_grad():
        for arguments in calls:
            same(hot(*arguments), eager(*arguments))
    served(captures=captures)


X = torch.randn(N, L, E)
SPOILED = X.clone()
SPOILED[1, 5, 3] = math.nan


@pytest.mark.parametrize("kind", ["plain", "norm", "dense", "norm first", "gelu"])
def test_an_encoder_given_padding(kind: str) -> None:
    settings: dict[str, dict[str, Any]] = {
        "plain": {}, "norm": {"norm": True}, "dense": {"nested": False},
        "norm first": {"norm_first": True, "nested": False}, "gelu": {"activation": "gelu"},
    }  # fmt: skip
    encoder = _encoder(**settings[kind])

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding)

    _alike(encode, *((X, padding) for padding in PADDINGS.values()), (SPOILED, END), verify="first")


def test_an_encoder_given_padding_in_numbers() -> None:
    encoder = _encoder()

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding)

    added = [torch.zeros(N, L).masked_fill(p, n) for p in PADDINGS.values() for n in (-math.inf, -1e9, -0.5)]
    _alike(encode, *((X, padding) for padding in added))


def test_an_encoder_that_does_not_look_where_the_padding_is() -> None:
    encoder = _encoder()
    encoder.mask_check = False

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding)

    _alike(encode, *((X, padding) for padding in PADDINGS.values()))


@pytest.mark.parametrize("looks", [True, False])
def test_an_encoder_given_nothing_but_padding(looks: bool) -> None:
    encoder = _encoder(norm=True)
    encoder.mask_check = looks

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding)

    hot = inference(encode, verify="off", fallback="error", backend="onnxruntime")
    with torch.no_grad():
        for padding in (END, ~NONE, WHOLE, ~NONE):
            if not padding.all():
                same(hot(X, padding), encode(X, padding))
                continue
            with pytest.raises(RuntimeError, match="at least one constituent tensor should have non-zero numel"):
                hot(X, padding)
    served(captures=1)


def test_an_encoder_given_sizes_that_vary() -> None:
    encoder = _encoder()

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding)

    hot = inference(encode, verify="off", fallback="error")
    with torch.no_grad():
        for batch, length in ((3, 6), (4, 7), (5, 9), (2, 4)):
            x = torch.randn(batch, length, E)
            padding = torch.arange(length) >= torch.randint(1, length, (batch, 1))
            same(hot(x, padding), encode(x, padding))
    served(captures=2)


def test_an_encoder_given_a_mask() -> None:
    encoder = _encoder()

    def encode(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return encoder(x, mask)

    biases = torch.zeros(L, L)
    biases[0, 1], biases[3, 4] = -0.5, 0.5  # to the fused kernel each number but 0 is "not to be looked at"
    _alike(encode, (X, torch.zeros(L, L)), (X, CAUSAL), (X, biases), (X, torch.randn(L, L)))


def test_an_encoder_given_a_mask_and_padding() -> None:
    encoder = _encoder()

    def encode(x: torch.Tensor, mask: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, mask, padding)

    _alike(encode, *((X, mask, padding) for padding in PADDINGS.values() for mask in (BLIND, CAUSAL == 0)))


def test_a_layer_told_that_its_mask_is_causal() -> None:
    layer = _encoder().layers[0]

    def encode(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return layer(x, mask, is_causal=True)

    _alike(encode, (X, CAUSAL), (X, torch.zeros(L, L)))


def test_a_layer_given_a_mask_for_each_head() -> None:
    layer = _encoder().layers[0]

    def encode(x: torch.Tensor, mask: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return layer(x, mask, padding)

    masks = torch.zeros(N * HEADS, L, L, dtype=torch.bool)
    masks[5, 0] = True
    _alike(encode, *((X, mask, p) for mask in (masks & False, masks) for p in (NONE, WHOLE)))


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_attention_where_a_query_sees_nothing(weights: bool, average: bool) -> None:
    attention = _encoder().layers[0].self_attn

    def attend(x: torch.Tensor, mask: torch.Tensor, padding: torch.Tensor) -> Any:
        return attention(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=weights, average_attn_weights=average
        )

    _alike(attend, *((X, mask, p) for mask in (BLIND & False, BLIND) for p in PADDINGS.values()))


def test_attention_given_a_mask_of_numbers() -> None:
    """There is no fused kernel for it."""
    attention = _encoder().layers[0].self_attn

    def attend(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return attention(x, x, x, attn_mask=mask, need_weights=False)[0]

    _alike(attend, (X, torch.zeros(L, L)), (X, torch.randn(L, L)), (X, CAUSAL))


def test_attention_to_another_sequence() -> None:
    """Nor for this: a query that sees nothing gets 0."""
    attention = _encoder().layers[0].self_attn

    def look(x: torch.Tensor, y: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return attention(x, y, y, key_padding_mask=padding, need_weights=False)[0]

    _alike(look, *((X, X + 1, padding) for padding in PADDINGS.values()))


def test_a_decoder_and_a_whole_transformer() -> None:
    torch.manual_seed(0)
    whole = nn.Transformer(E, HEADS, 2, 2, 32, batch_first=True).eval()

    def translate(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return whole(
            x, y, tgt_mask=mask, src_key_padding_mask=padding, tgt_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )  # fmt: skip

    causal = CAUSAL != 0
    _alike(translate, *((X, X + 1, mask, p) for p in PADDINGS.values() for mask in (causal, BLIND)))


def test_with_and_without_gradients_are_two_graphs() -> None:
    encoder = _encoder()

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding)

    hot = inference(encode, verify="off", fallback="error", backend="onnxruntime")
    for _ in range(2):
        for padding in PADDINGS.values():
            same(hot(X, padding).detach(), encode(X, padding).detach())
            with torch.no_grad():
                same(hot(X, padding), encode(X, padding))
    served(captures=2)
    encoder.requires_grad_(False)
    for padding in PADDINGS.values():
        same(hot(X, padding), encode(X, padding))
    encoder.requires_grad_(True)
    for padding in PADDINGS.values():
        same(hot(X, padding).detach(), encode(X, padding).detach())


def test_gradients_turned_off_inside() -> None:
    encoder = _encoder()

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return encoder(x, src_key_padding_mask=padding)

    hot = inference(encode, verify="off", backend="onnxruntime")
    for padding in PADDINGS.values():
        same(hot(X, padding), encode(X, padding))


@pytest.mark.parametrize("learns", ["before", "detached", "after", "custom"])
def test_a_frozen_encoder_beside_a_layer_that_learns(learns: str) -> None:
    """With gradients on, the path depends on whether the encoder's input requires one."""
    encoder, linear = _encoder().requires_grad_(False), nn.Linear(E, E)

    class Same(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def setup_context(context: Any, given: Any, result: Any) -> None:
            pass

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        if learns == "after":
            return linear(encoder(x * 2, src_key_padding_mask=padding))
        y = linear(x) * torch.zeros_like(x).add(2)
        if learns == "detached":
            y = y.detach() + 1
        if learns == "custom":
            y = Same.apply(y)
        return encoder(y, src_key_padding_mask=padding)

    hot = inference(encode, verify="off", backend="onnxruntime", cache_key=learns)
    for padding in PADDINGS.values():
        same(hot(X, padding).detach(), encode(X, padding).detach())
    with torch.no_grad():
        for padding in PADDINGS.values():
            same(hot(X, padding), encode(X, padding))
    found = counts()
    if learns != "custom":
        served(captures=2)
    else:
        assert found["hits"] >= len(PADDINGS) and found["captures"] >= 1, found
        assert all("requires a gradient" in reason for reason in found["fallbacks"]), found


def test_the_fused_kernels_turned_off() -> None:
    encoder = _encoder()

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding)

    hot = inference(encode, verify="off", fallback="error", backend="onnxruntime")
    before = torch.backends.mha.get_fastpath_enabled()
    try:
        with torch.no_grad():
            for on in (True, False, True):
                torch.backends.mha.set_fastpath_enabled(on)
                for padding in PADDINGS.values():
                    same(hot(X, padding), encode(X, padding))
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    served(captures=2)


@pytest.mark.parametrize("part", ["encoder", "attention"])
def test_under_autocast(part: str) -> None:
    encoder = _encoder(nested=False)  # torch's kernel for nested tensors fails under autocast on a CPU
    attention = encoder.layers[0].self_attn

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        if part == "encoder":
            return encoder(x, src_key_padding_mask=padding)
        return attention(x, x, x, key_padding_mask=padding)[0]

    hot = inference(encode, verify="off", fallback="error", backend="onnxruntime", cache_key=part)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for padding in PADDINGS.values():
            same(hot(X, padding), encode(X, padding), 5e-2)
    served(captures=1)


def test_torch_is_left_as_it_was() -> None:
    layers = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.TransformerDecoder)
    before = [vars(kind)["forward"] for kind in layers]
    encoder = _encoder()
    hot = inference(lambda x: encoder(x), verify="off", backend="onnxruntime")
    for _ in range(2):
        hot(X)
    assert [vars(kind)["forward"] for kind in layers] == before
    assert torch.no_grad.__enter__.__qualname__ == "no_grad.__enter__" and not hasattr(
        torch.no_grad.__enter__, "__wrapped__"
    )


@pytest.mark.parametrize("first", [LEFT, END], ids=["left", "end"])
def test_a_decorated_encoder_given_padding(first: torch.Tensor) -> None:
    encoder, plain = _encoder(), _encoder()
    inference(encoder, verify="first", fallback="error", backend="onnxruntime")
    with torch.no_grad():
        for padding in (first, *PADDINGS.values()):
            expected = plain(X, src_key_padding_mask=padding)
            same(encoder(X, src_key_padding_mask=padding), expected)
    served(captures=1)


@pytest.mark.parametrize("whole", [False, True], ids=["in its class", "the layer"])
def test_a_decorated_encoder_in_a_decorated_method(whole: bool) -> None:
    class Encoder(nn.TransformerEncoder):
        forward = inference(nn.TransformerEncoder.forward)

    plain = _encoder()
    encoder = inference(_encoder()) if whole else Encoder(plain.layers[0], 2).eval()
    encoder.load_state_dict(plain.state_dict())

    def encode(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return encoder(x, src_key_padding_mask=padding) * 2

    hot = inference(encode, verify="off", fallback="error", backend="onnxruntime")
    with torch.no_grad():
        for padding in (LEFT, END, NONE):
            same(hot(X, padding), plain(X, src_key_padding_mask=padding) * 2)
    assert counts("encode")["captures"] == 1


def test_decorated_attention_where_nothing_may_be_looked_at() -> None:
    attention = nn.MultiheadAttention(E, HEADS, batch_first=True).eval()

    def expected(padding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return nn.MultiheadAttention.forward(attention, X, X, X, padding, False)

    hot = inference(attention, verify="off", fallback="error", backend="onnxruntime")
    with torch.no_grad():
        for padding in (END, WHOLE):
            same(hot(X, X, X, padding, False)[0], expected(padding)[0])
