"""The benchmark of a GPU, as far as it goes without one: floors, figures in turn, errors, goals, tables, the page."""

from __future__ import annotations

import functools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import _floors, _gpu_machine, _gpu_measure, _gpu_models, _measure, plans
from benchmarks._gpu_models import MODELS, Model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("given", "why"), [("0", "0 is not at least 1"), ("-3", "-3 is not"), ("x", "invalid count")])
def test_no_rounds_are_not_measured(given: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _measure.arguments("what it measures").parse_args(["--rounds", given])
    assert f"argument --rounds: {why}" in capsys.readouterr().err


def test_the_floor_of_a_linear_layer_is_what_a_hand_computes() -> None:
    layer = torch.nn.Linear(8, 4).half()
    work = _floors.work(layer, [torch.zeros(3, 8).half()])
    assert work == (2 * (8 * 4 + 4 + 3 * 8 + 3 * 4), 2 * 3 * 8 * 4)
    floors = _floors.floors(work, _floors.Roof(bandwidth=1e6, arithmetic=1e3))
    assert floors == pytest.approx({"bytes": 0.144, "arithmetic": 192.0, "floor": 192.0})


def test_shared_weights_are_moved_once_and_every_result_counts() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4, bias=False)
            self.second = self.first
            self.register_buffer("scale", torch.ones(4))

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x)) * self.scale, [x + 1]

    work = _floors.work(Twice(), [torch.zeros(2, 4)])
    assert work == (4 * (16 + 4 + 8 + 8 + 8), 2 * 2 * (2 * 4 * 4))


def test_convolutions_and_attention_are_arithmetic() -> None:
    conv = _floors.work(torch.nn.Conv2d(3, 8, 3, padding=1), [torch.zeros(2, 3, 5, 5)])
    assert conv.operations == 2 * 2 * 25 * 8 * 3 * 9

    class Attention(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    shape = (2, 4, 6, 8)
    attention = _floors.work(Attention(), [torch.zeros(shape)] * 3)
    assert attention.operations == 2 * 2 * (2 * 4) * 6 * 6 * 8


@pytest.mark.parametrize(
    "name, bandwidth",
    [("NVIDIA H100 80GB HBM3", 3.35e12), ("NVIDIA H100 PCIe", 2e12), ("NVIDIA H100 NVL", 3.9e12),
     ("NVIDIA H200", 4.8e12), ("NVIDIA A100-SXM4-40GB", 1.555e12), ("NVIDIA A100-SXM4-80GB", 2.039e12),
     ("NVIDIA L4", 0.3e12), ("NVIDIA L40", 0.864e12), ("NVIDIA L40S", 0.864e12)],
)  # fmt: skip
def test_roofs_go_by_the_whole_name(name: str, bandwidth: float) -> None:
    ceiling = _floors.roof(name)
    assert ceiling is not None and ceiling.bandwidth == bandwidth
    assert _floors.roof("NVIDIA TITAN V") is None


def test_another_form_of_a_chip_has_its_own_roof_and_a_slice_of_one_has_none() -> None:
    whole, other = _floors.roof("NVIDIA H200"), _floors.roof("NVIDIA H200 NVL")
    assert whole is not None and other is not None and other.arithmetic < whole.arithmetic
    for name in ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H200 MIG 1g.18gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"):
        assert _floors.roof(name) is None


#: Weights of the layer in millions, and operations of a call of one item in units of 1e9, as they are told of them.
TOLD = {
    "DiT blocks 28x1152, 256 tokens": (669, 230), "BERT-base, 128 tokens": (109, 22.3),
    "BERT-base, 512 tokens": (109, 96), "ViT-B": (86, 35), "ResNet-50": (23.5, 8.2), "UNet block 640x32x32": (9.8, 21),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_models_are_what_they_are_called(name: str) -> None:
    """Built without memory for their weights."""
    pytest.importorskip("transformers")
    model = MODELS[name]
    with torch.device("meta"):
        layer, given = model.layer().eval(), model.arguments(1)
    millions, billions = TOLD[name]
    assert sum(each.numel() for each in layer.parameters()) / 1e6 == pytest.approx(millions, rel=0.05)
    assert _floors.work(layer, given).operations / 1e9 == pytest.approx(billions, rel=0.05)
    assert set(TOLD) == set(MODELS) and model.products == ("ResNet" not in name and "UNet" not in name)


class Clock:
    """Stands for CUDA's events: a call takes as many milliseconds as it says."""

    def __init__(self) -> None:
        self.now = 0.0

    def event(self) -> Any:
        clock = self

        class Event:
            def record(self) -> None:
                self.at = clock.now

            def synchronize(self) -> None: ...

            def elapsed_time(self, end: Any) -> float:
                return float(end.at - self.at)

        return Event()


def test_runs_are_timed_in_turn_each_first_as_often() -> None:
    clock, order, count = Clock(), [], Counter[str]()

    def run(name: str, milliseconds: float) -> None:
        clock.now += milliseconds
        count[name] += 1
        if not order or order[-1] != name:
            order.append(name)

    runs = {"slow": lambda: run("slow", 3.0), "quick": lambda: run("quick", 0.5)}
    found = _gpu_measure.in_turn(runs, 4, clock.event, {})
    assert found == {"slow": [3.0] * 4, "quick": [0.5] * 4}
    # Neighbours in two turns are one entry: each turn begins with the other one.
    assert order == [*["slow", "quick"] * 3, "slow"] and count["slow"] == count["quick"]


def test_errors_are_the_largest_over_all_draws() -> None:
    draws = [[torch.tensor([1.0, 2.0])], [torch.tensor([4.0])]]
    calls = {"right": lambda x: x * 2, "off": lambda x: x * 2.5}
    found = _gpu_measure.errors(calls, lambda x: x * 2, draws, lambda x: x.double(), {})
    assert found == {"right": 0.0, "off": 2.0}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host for a GPU."""
    clock = Clock()
    for kind in (torch.Tensor, torch.nn.Module):
        monkeypatch.setattr(kind, "cuda", lambda self: self)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: clock.event())


def compared(peers: dict[str, Any], first: list[str] | None = None) -> list[dict[str, Any]]:
    layer = torch.nn.Linear(4, 3)
    return list(_gpu_measure.compare(layer, lambda: [torch.randn(2, 4)], "bfloat16", peers, 3, first or list(peers)))


def test_peers_are_compared_on_copies_of_one_layer(host: None) -> None:
    made: list[Any] = []

    def peer(layer: Any, given: Any) -> Any:
        made.append((layer, given))
        return layer

    layer = torch.nn.Linear(4, 3)
    (found,) = _gpu_measure.compare(layer, lambda: [torch.randn(2, 4)], "bfloat16", {"peer": peer}, 3, ["peer"])
    assert set(found) == {"first_s", "ms", "error", "failed"} and not found["failed"]
    assert all(set(found[each]) == {"eager", "peer"} for each in ("first_s", "ms", "error"))
    assert made[0][0] is not layer and made[0][0].weight.dtype == made[0][1][0].dtype == torch.bfloat16
    assert 0 < found["error"]["eager"] == found["error"]["peer"] < 0.1
    assert len(found["ms"]["peer"]) == 3


@pytest.mark.parametrize("at", [0, 1, 3, 40, 10_000])
def test_a_peer_that_fails_costs_its_own_figures(at: int, host: None) -> None:
    """Where it is made, at its first call, where it warms, where it is timed, where its errors are taken."""
    calls = Counter[str]()

    def bad(layer: Any, given: Any) -> Any:
        def call(*arguments: Any) -> Any:
            calls["bad"] += 1
            if calls["bad"] == at or (at == 10_000 and arguments[0] is not given[0]):
                raise RuntimeError("Failed to find\nC compiler")
            return layer(*arguments)

        if at == 0:
            raise RuntimeError("Failed to find\nC compiler")
        return call

    (found,) = compared({"bad": bad, "good": lambda layer, given: layer})
    assert found["failed"] == {"bad": "RuntimeError: Failed to find C compiler"}
    assert set(found["error"]) == {"eager", "good"} and len(found["ms"]["good"]) == 3
    assert ("bad" in found["ms"]) == (at == 10_000)


@pytest.mark.parametrize("at", ["double", "forward"])
def test_without_memory_for_float64_there_are_no_errors_but_all_speeds(
    at: str, host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = torch.nn.Linear.forward

    def fail(self: Any, *x: Any) -> Any:
        if at == "double" or x[0].dtype == torch.float64:
            raise RuntimeError("CUDA out of memory")
        return forward(self, *x)

    monkeypatch.setattr(torch.nn.Linear, at, fail)
    (found,) = compared({"peer": lambda layer, given: layer})
    assert found["failed"] == {"float64": "RuntimeError: CUDA out of memory"}
    assert not found["error"] and set(found["ms"]) == {"eager", "peer"}
    assert not torch.is_inference_mode_enabled()


def test_what_is_wanted_first_is_told_before_the_others_are_made(host: None) -> None:
    layer, made = torch.nn.Linear(4, 3), list[str]()

    def peer(name: str) -> Any:
        return lambda layer, given: made.append(name) or layer

    peers = {"slow to make": peer("slow to make"), "native": peer("native")}
    found = _gpu_measure.compare(layer, lambda: [torch.randn(2, 4)], "float32", peers, 3, ["native"])
    early = next(found)
    assert not torch.is_inference_mode_enabled()
    assert made == ["native"] and set(early["ms"]) == set(early["error"]) == {"eager", "native"}
    assert set(next(found)["ms"]) == {"eager", *peers} and made == ["native", "slow to make"]


def test_without_a_gpu_there_is_a_reason_and_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid_infer.backends.native import _driver

    monkeypatch.setattr(_driver, "missing", lambda: "the NVIDIA driver is not installed")
    assert _gpu_machine.missing() == "the NVIDIA driver is not installed"
    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "without CUDA" in _gpu_machine.missing()


def test_what_would_be_measured_in_natives_place_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler eager would be; without the libraries, kernels that take their place."""
    from hybrid_infer.backends.native import _cublaslt, _cudnn, _driver, _nvrtc

    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.setattr(_driver, "launcher", lambda: SimpleNamespace(cuda=lambda: 13))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(_nvrtc, "lacking", lambda driver: f"no headers for {driver}")
    assert _gpu_machine.unready(own_kernels=True) == "no headers for 13"
    monkeypatch.setattr(_nvrtc, "lacking", lambda driver: "")
    monkeypatch.setattr(_cublaslt, "missing", lambda: "")
    monkeypatch.setattr(_cudnn, "missing", lambda: "the package nvidia-cudnn-frontend is not installed")
    assert "without cuDNN: the package nvidia-cudnn-frontend is not installed" in _gpu_machine.unready(False)
    assert "cuBLASLt" not in _gpu_machine.unready(False) and not _gpu_machine.unready(True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(
        name="NVIDIA H100", major=9, minor=0, multi_processor_count=132))  # fmt: skip
    told = _gpu_machine.described(_gpu_machine.machine())
    assert "without cuDNN: the package nvidia-cudnn-frontend" in told and f"torch {torch.__version__}" in told
    monkeypatch.setattr(_cudnn, "missing", lambda: "")
    assert not _gpu_machine.unready(False) and "without" not in _gpu_machine.described(_gpu_machine.machine())


def _launches(monkeypatch: pytest.MonkeyPatch, name: str, model: Model, any_batch: bool = False) -> list[str]:
    monkeypatch.setattr(plans, "MODELS", {name: model})
    return plans.measure(name, "float16", 2, any_batch)


@pytest.mark.parametrize("name", ["ViT-B", "BERT-base, 128 tokens"])
def test_a_plan_of_any_batch_launches_what_one_of_a_batch_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The masks that the exporter writes for any batch, which hide nothing, cost nothing."""
    transformers = pytest.importorskip("transformers")
    small = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = {"ViT-B": "ViTConfig"}.get(name, "BertConfig")
    monkeypatch.setattr(transformers, config, functools.partial(getattr(transformers, config), **small))
    alone, any_batch = (_launches(monkeypatch, name, MODELS[name], each) for each in (False, True))
    assert int(any_batch[3]) <= int(alone[3]) + (name == "ViT-B"), (alone, any_batch)  # its token of the class, spread
    assert int(any_batch[4]) <= 1.1 * int(alone[4]), (alone, any_batch)


def test_a_block_of_a_diffusion_transformer_is_eight_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of modulation, of packed queries, keys and values, behind attention and of the MLP's two layers; two
    normalisations, and attention itself. In front of all blocks SiLU, behind them the last gate.
    """
    from benchmarks._dit import DiTBlocks

    def arguments(batch: int) -> list[Any]:
        return [torch.randn(batch, 16, 64), torch.randn(batch, 64)]

    for blocks in (1, 3):
        found = _launches(monkeypatch, "DiT", Model(lambda blocks=blocks: DiTBlocks(blocks, 64, 4), arguments))
        assert int(found[3]) == 2 + 8 * blocks, found
        assert int(found[2]) > 3 * int(found[3])  # operators of the graph


def test_a_block_of_a_unet_turns_its_image_once_at_either_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three turns of weights and images in, one out; three normalisations, two convolutions, three products, attention,
    and what is elementwise between them.
    """
    def arguments(batch: int) -> list[Any]:
        return [torch.randn(batch, 64, 8, 8), torch.randn(batch, 1280)]

    found = _launches(monkeypatch, "UNet", Model(lambda: _gpu_models._unet_block(64), arguments))
    assert int(found[3]) == 16, found
