"""The hooks by which models of transformers gather hidden states and attentions: asleep unless they are asked for."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, eagerly, same, served

from hybrid_infer import CaptureError, inference
from hybrid_infer.frontends import _torch_collectors

transformers = pytest.importorskip("transformers", minversion="5")

IDS = torch.arange(8).reshape(2, 4)


def bert() -> Any:
    size = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.BertConfig(**size, intermediate_size=8, attn_implementation="eager")
    return transformers.BertModel(config, add_pooling_layer=False).eval()


def agrees(model: Any, **asked: Any) -> Any:
    """The results, which are those of an untouched copy."""
    expected = bert()(IDS, **asked)
    found = model(IDS, **asked)
    assert [*found] == [*expected]
    for name in found:
        same(found[name], expected[name])
    return found


def test_a_model_that_gathers_hidden_states_is_served_before_and_after_the_hooks_are_there() -> None:
    model = inference(bert(), fallback="error")
    with torch.no_grad():
        for _ in range(2):
            assert len(agrees(model, output_hidden_states=True).hidden_states) == 3
            agrees(model)
            assert len(agrees(model, output_hidden_states=True, output_attentions=True).attentions) == 2
        served(captures=3)
        hooked = bert()
        hooked(IDS, output_hidden_states=True)
        for other in (hooked, copy.deepcopy(hooked), bert()):
            agrees(inference(other, fallback="error"), output_hidden_states=True)
        served(captures=3)


def test_a_part_of_a_model_runs_eagerly_while_something_in_it_is_gathered() -> None:
    model = bert()
    for layer in model.encoder.layer:
        inference(layer)
    with torch.no_grad():
        for _ in range(2):
            assert len(agrees(model, output_attentions=True).attentions) == 2
        eagerly("has a hook")
        for _ in range(2):
            assert len(agrees(model, output_hidden_states=True).hidden_states) == 3  # its caller's, not its own
            agrees(model)
    before = counts()
    with torch.no_grad():
        agrees(model, output_attentions=True)
    assert counts()["eager_calls"] == before["eager_calls"] + 2 and counts()["hits"] == before["hits"] > 0


def test_hooks_that_somebody_took_away_are_missing_in_the_results_too() -> None:
    model = inference(bert(), fallback="error")
    with torch.no_grad():
        for _ in range(2):
            assert len(model(IDS, output_hidden_states=True).hidden_states) == 3
        for layer in model.modules():
            layer._forward_hooks.clear()
        for _ in range(2):
            assert model(IDS, output_hidden_states=True).hidden_states == ()


def test_another_hook_beside_them_is_refused() -> None:
    model = inference(bert(), fallback="error")
    with torch.no_grad():
        model(IDS, output_hidden_states=True)
        handle = model.encoder.layer[0].register_forward_hook(lambda *_: None)
        with pytest.raises(CaptureError, match="Remove the hook"):
            model(IDS, output_hidden_states=True)
        handle.remove()
        agrees(model, output_hidden_states=True)


class Busy(torch.nn.Module):
    """A layer at whose trace another thread is at work."""

    def __init__(self, layer: torch.nn.Module, work: Callable[[], None]) -> None:
        super().__init__()
        self.layer, self.work = layer, work

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        thread = threading.Thread(target=self.work)
        thread.start()
        thread.join()
        return self.layer(*args, **kwargs)


class Gathers(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> Any:
        return self.model(ids, output_hidden_states=True).hidden_states


def test_what_another_thread_gathers_while_a_model_is_traced_stays_apart() -> None:
    other, found = bert(), []

    def work() -> None:
        with torch.no_grad():
            found.append(len(other(IDS, output_hidden_states=True).hidden_states))

    model = bert()
    model.encoder.layer[1] = Busy(model.encoder.layer[1], work)
    with torch.no_grad(), _torch_collectors.by_context():
        program = torch.export.export(Gathers(model), (IDS,), strict=False)
    assert found == [3] and len(program.graph_signature.user_outputs) == 3
