"""torch's recurrent layers: one static model for sequences of every length, and what is left to torch."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch_support import counts, same, served

from hybrid_infer import inference
from hybrid_infer.frontends import _torch_recurrent

pytestmark = pytest.mark.torch

KINDS = {
    "lstm": (torch.nn.LSTM, {}), "gru": (torch.nn.GRU, {}), "rnn": (torch.nn.RNN, {}),
    "relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
    "plain": {}, "deep": {"num_layers": 2, "batch_first": True}, "both": {"bidirectional": True},
    "deep, both": {"num_layers": 3, "bidirectional": True, "batch_first": True}, "no bias": {"bias": False},
}  # fmt: skip


class Reader(torch.nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(6, 5, **options)

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        return self.rnn(x, state)


def pair(kind: Any, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    eager = Reader(kind, **options).eval()
    return eager, inference(copy.deepcopy(eager))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KINDS)
def test_one_model_for_every_length_and_batch(name: str, form: str) -> None:
    kind, options = KINDS[name]
    eager, hot = pair(kind, **options, **FORMS[form])
    with torch.no_grad():
        for first, second in ((4, 3), (7, 2), (2, 9), (30, 5)):
            x = torch.randn(first, second, 6)
            same(hot(x), eager(x))
    served(captures=2)  # of one size, then of all


@pytest.mark.parametrize("name", KINDS)
def test_states_are_taken_and_given(name: str) -> None:
    """Step by step, as a decoder runs; sequences of one step, and without a batch."""
    kind, options = KINDS[name]
    eager, hot = pair(kind, num_layers=2, **options)
    with torch.no_grad():
        states: Any = (None, None)
        for length in (3, 3, 4, 5):
            x = torch.randn(length, 2, 6)
            found = hot(x, states[0]), eager(x, states[1])
            same(*found)
            states = found[0][1], found[1][1]
        for x in (torch.randn(1, 2, 6), torch.randn(4, 6)):
            for _ in range(2):
                same(hot(x), eager(x))
    assert counts()["eager_calls"] == 0


def test_weights_are_those_of_the_call() -> None:
    eager, hot = pair(torch.nn.LSTM, bidirectional=True)
    x = torch.randn(4, 2, 6)
    with torch.no_grad():
        same(hot(x), eager(x))
        for layer in (eager, hot):
            layer.rnn.weight_hh_l0_reverse.mul_(2)
            layer.rnn.bias_ih_l0.add_(1)
        same(hot(x), eager(x))
    served(captures=1)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")  # by torch
@pytest.mark.parametrize("options", [
    {"proj_size": 3}, {"dropout": 0.5, "num_layers": 2}, {"dtype": torch.float64},
], ids=["projection", "dropout", "float64"])  # fmt: skip
def test_what_has_no_such_operator_is_answered_rightly(options: dict[str, Any]) -> None:
    eager, hot = pair(torch.nn.LSTM, **options)
    if "dropout" in options:
        for layer in (eager, hot):
            layer.train()
    x = torch.randn(4, 2, 6, dtype=options.get("dtype"))
    with torch.no_grad():
        for _ in range(2):
            found = []
            for layer in (hot, eager):
                torch.manual_seed(1)
                found.append(layer(x))
            same(*found)
    assert counts()["hits"] == 0


def test_dropout_between_layers_is_off_in_evaluation() -> None:
    eager, hot = pair(torch.nn.GRU, num_layers=2, dropout=0.5)
    with torch.no_grad():
        for length in (3, 4, 5):
            x = torch.randn(length, 2, 6)
            same(hot(x), eager(x))
    served(captures=2)


def test_packed_sequences_are_left_to_torch() -> None:
    eager, hot = pair(torch.nn.LSTM, batch_first=True)
    x = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(2, 4, 6), torch.tensor([4, 2]), batch_first=True)
    with torch.no_grad():
        for _ in range(2):
            same(hot(x)[0].data, eager(x)[0].data)
    assert counts()["hits"] == 0


def test_other_threads_meet_torchs_own_functions() -> None:
    layer, x, found = torch.nn.LSTM(6, 5), torch.randn(4, 2, 6), []

    def elsewhere() -> None:
        with torch.no_grad(), torch.profiler.profile() as profile:
            layer(x)
        found.extend(event.key for event in profile.key_averages())

    with _torch_recurrent.open_lengths():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with torch.no_grad():
            here = layer(x)
    assert "aten::lstm" in found and not any("hybrid_infer" in key for key in found)
    with torch.no_grad():
        same(here, layer(x))


class Tagger(torch.nn.Module):
    """Asks after its layer, as a conditional random field does of its mask, and of what the layer gives."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(6, 5, **options)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.rnn(x)[0]
        score = y[0] * 2
        score += y[-1]
        if not mask[0].all():
            raise ValueError("the first step is masked")
        return score - 3 if (y > 2).any() else score


@pytest.mark.parametrize("kind", KINDS)
def test_a_branch_behind_a_layer_is_served(kind: str) -> None:
    make, options = KINDS[kind]
    torch.manual_seed(0)
    eager = Tagger(make, **options, bidirectional=True).eval()
    hot = inference(copy.deepcopy(eager))
    with torch.no_grad():
        for length in (3, 4, 6):
            x, mask = torch.randn(length, 2, 6), torch.ones(length, 2, dtype=torch.bool)
            same(hot(x, mask), eager(x, mask))
        served(captures=2)
        with pytest.raises(ValueError, match="the first step is masked"):
            hot(x, ~mask)
