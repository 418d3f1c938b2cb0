"""What a user is told: in the words of the user's own program, once, and with nothing of the tracer's insides."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import counts

from hybrid_infer import CacheWarning, CaptureError, inference, reset_stats

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Layer(torch.nn.Module):
    """Methods that run eagerly, each for a reason of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))
        self.log: list[int] = []
        self.table: dict[int, int] = {}

    def turns_an_argument(self, x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return self.linear(x.T)

    def draws(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.randn_like(x)

    def draws_in_place(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.empty(4).uniform_()

    def branches(self, x: torch.Tensor) -> torch.Tensor:
        while x.abs().sum() < 100:
            x = x * 2
        return self.linear(x)

    def to_numpy(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + float(x.detach().numpy().sum())

    def decomposes(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(x)[0]

    def doubles(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def appends(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(len(self.log))
        return self.linear(x)

    def enters(self, x: torch.Tensor) -> torch.Tensor:
        self.table[len(self.table)] = 0
        return self.linear(x)

    def too_narrow(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x[:, :3])


def line_of(function: Callable[..., Any]) -> str:
    return f"{Path(__file__).name}:{function.__code__.co_firstlineno + 1}"


def reasons(function: Callable[..., Any], x: torch.Tensor = X) -> str:
    """The one reason for which a method of `Layer` ran eagerly three times."""
    hot = type("Hot", (Layer,), {"hot": inference(function)})()
    with torch.no_grad():
        for _ in range(3):
            hot.hot(x.clone())
    found = counts()
    assert found["eager_calls"] == 3 and len(found["fallbacks"]) == 1, found
    return str(next(iter(found["fallbacks"])))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (Layer.turns_an_argument, "torch.Tensor.t_ changes the shape of a tensor in place"),
        (Layer.draws, "torch.randn_like draws random numbers"),
        (Layer.draws_in_place, "torch.Tensor.uniform_ draws random numbers"),
        (Layer.decomposes, "ONNX has no form of torch's operator linalg_svd"),
        (Layer.appends, "it changes self.log"),
        (Layer.enters, "it changes self.table"),
    ],
)
def test_a_reason_names_what_the_user_wrote(function: Callable[..., Any], reason: str) -> None:
    found = reasons(function)
    assert found.startswith(reason)
    assert found.endswith(f"{line_of(function)})") or function is Layer.turns_an_argument


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x + sum(range(int(x.shape[0] * 0.7))),
         "a condition on sizes uses int(), which cannot be kept as data"),
        (lambda x: x + (1 if x.shape[0] & 4 else 2), "a condition on sizes uses &, which cannot be kept as data"),
        (lambda x: x * (x.shape[0] ^ 5),
         "torch's tracer has no form of Python's operator.xor of a size or an integer that varies"),
        (lambda x: x * round(x.shape[0] / 3, 1), "a number made of sizes is rounded to digits"),
    ],
)
def test_why_a_size_is_fixed_is_told_without_the_symbols_of_the_tracer(
    function: Callable[..., Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hybrid_infer")
    hot = inference(function)
    for rows in (8, 10, 12):
        assert torch.equal(hot(torch.ones(rows, 4)), function(torch.ones(rows, 4)))
    (line,) = [each for each in caplog.messages if "captured anew" in each]
    assert line.endswith(f"along axis 0 of argument `x`, which its tracer fixes ({why})")


def test_what_a_forward_draws_and_reads_is_named_with_its_line() -> None:
    class Noisy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn(4)

    class Late(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * time.time()

    for layer, reason in ((Noisy(), "torch.randn draws random numbers"), (Late(), "it reads the clock")):
        with torch.no_grad():
            inference(layer)(X)
        (found,) = counts()["fallbacks"]
        assert found.startswith(f"{reason} (") and line_of(type(layer).forward) in found
        reset_stats()


def test_an_argument_that_cannot_be_is_named() -> None:
    hot = inference(lambda x, table: x * len(table["a"]))
    hot(X, {"a": X.numpy()})
    (reason,) = counts()["fallbacks"]
    assert reason.startswith("argument `table`['a'] is of class numpy.ndarray")


def test_a_branch_on_values_and_numpy_are_named_with_their_line() -> None:
    branch = reasons(Layer.branches)
    assert branch.startswith("a branch depends on the values of a tensor (") and line_of(Layer.branches) in branch
    assert "u0" not in branch and "guard" not in branch


def test_numpy_is_named_with_its_line() -> None:
    call = reasons(Layer.to_numpy)
    assert call.startswith("it calls .numpy() on a tensor (") and line_of(Layer.to_numpy) in call


def test_a_type_that_no_engine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "openvino")
    reason = reasons(Layer.doubles, X.double())
    assert reason == "no engine can run it: openvino: computes in float32 where Multiply gives float64"


@pytest.mark.parametrize("function", [Layer.too_narrow, Layer.branches])
def test_the_tracer_prints_nothing(function: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    hot = type("Hot", (Layer,), {"hot": inference(function)})()
    capfd.readouterr()
    for _ in range(2):
        try:
            with torch.no_grad():
                hot.hot(X)
        except RuntimeError as fault:
            assert "mat1 and mat2 shapes cannot be multiplied" in str(fault)
        else:
            assert function is Layer.branches
    told = capfd.readouterr()
    assert told.out == "" and [line for line in told.err.splitlines() if "runs eagerly" not in line] == []


def test_another_thread_may_log_through_torch_while_a_method_is_traced() -> None:
    logger = logging.getLogger("torch.onnx")
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]

    def speaks(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=logger.warning, args=("from another",))
        thread.start()
        thread.join()
        logger.warning("from the trace")
        return x * 2

    logger.addHandler(handler)
    try:
        with torch.no_grad():
            inference(speaks, verify="off")(X)
    finally:
        logger.removeHandler(handler)
    assert records == ["from another"]
    assert not handler.filters


@pytest.mark.parametrize("value", [lambda i: i * 0.37, lambda i: "a" * i], ids=["float", "str"])
def test_an_argument_of_many_values_is_one_reason(
    value: Callable[[int], Any], caplog: pytest.LogCaptureFixture
) -> None:
    hot = inference(lambda x, t: x * (t if isinstance(t, float) else len(t)), max_versions=2)
    with caplog.at_level(logging.WARNING, "hybrid_infer"), torch.no_grad():
        for i in range(6):
            hot(X, value(i))
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "argument `t` takes many values" in lines[0] and "max_versions=2" in lines[0]
    assert ("Pass it as a tensor" in lines[0]) and "0x" not in lines[0]
    assert list(counts()["fallbacks"].values()) == [4]


class Stepped(torch.nn.Module):
    """A layer that computes with a number of its own, which the program sets for each call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.inner.step


class ByRemainder(torch.nn.Module):
    """A layer with a graph for each remainder of the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 3 == 0:
            return x * 2
        return x * 3 if x.shape[0] % 3 == 1 else x * 4


def test_an_attribute_of_many_values_is_named(caplog: pytest.LogCaptureFixture) -> None:
    layer = Stepped().eval()
    hot = inference(layer, max_versions=2)
    with caplog.at_level(logging.WARNING, "hybrid_infer"), torch.no_grad():
        for step in range(6):
            layer.inner.step = step
            hot(X)
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "attribute self.inner.step takes many values. Pass it as an argument" in lines[0]


def test_what_varies_most_is_named_and_not_what_made_the_last_static_model(caplog: pytest.LogCaptureFixture) -> None:
    layer = Stepped().eval()
    hot = inference(layer, max_versions=3)
    with caplog.at_level(logging.WARNING, "hybrid_infer"), torch.no_grad():
        for step, x in enumerate([X, X, X.double(), X]):
            layer.inner.step = step
            hot(x)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert "attribute self.inner.step takes many values" in line


def test_an_argument_that_is_a_tensor_at_some_calls_takes_no_many_values(caplog: pytest.LogCaptureFixture) -> None:
    hot = inference(lambda x, mask=None: x if mask is None else x * mask, max_versions=1)
    with caplog.at_level(logging.WARNING, "hybrid_infer"), torch.no_grad():
        hot(X, X)
        hot(X)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert "the structure of argument `mask` varies" in line


def test_a_condition_that_varies_is_said_to(caplog: pytest.LogCaptureFixture) -> None:
    hot = inference(ByRemainder().eval(), max_versions=2)
    with caplog.at_level(logging.WARNING, "hybrid_infer"), torch.no_grad():
        for rows in range(3, 9):
            hot(torch.ones(rows, 2))
    lines = [r.getMessage() for r in caplog.records if "max_versions" in r.getMessage()]
    assert len(lines) == 1 and "a condition on its sizes varies" in lines[0]


def test_reasons_are_counted_in_bounded_memory() -> None:
    from hybrid_infer._stats import Counters

    counters = Counters("a method")
    for i in range(1000):
        counters.fall_back(f"reason {i}")
    assert len(counters.fallbacks) == 65 and counters.fallbacks["other reasons"] == 936
    counters.fall_back("reason 3")
    assert counters.fallbacks["reason 3"] == 2 and counters.eager_calls == 1001


def test_what_is_raised_is_not_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    hot = inference(lambda x: x + torch.rand(4), fallback="error")
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        for _ in range(2):
            with pytest.raises(CaptureError, match=r"torch\.rand draws random numbers"):
                hot(X)
    assert not [r for r in caplog.records if r.name == "hybrid_infer"]


def test_a_remedy_that_is_followed_helps_at_the_next_start() -> None:
    """What cannot be copied is refused before anything is read: nothing would tell that it is gone."""

    class Held(Layer):
        forward = inference(Layer.doubles)

    with open(__file__, encoding="utf-8") as file, torch.no_grad():
        layer = Held()
        layer.file = file
        for _ in range(2):
            layer(X)
        assert counts()["fallbacks"] == {next(iter(counts()["fallbacks"])): 2}
        assert "self.file cannot be copied" in next(iter(counts()["fallbacks"]))
        Held()(X)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 2


def test_a_directory_that_cannot_be_written_is_one_warning_at_the_line_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    one, two = (inference(save_model_dir=str(tmp_path / "file" / "store"))(torch.nn.Linear(4, 4)) for _ in range(2))
    with pytest.warns(CacheWarning) as seen, torch.no_grad():
        for layer in (one, two, one):
            layer(X)
        inference(lambda x: x + torch.rand(4), save_model_dir=str(tmp_path / "file" / "store"))(X)
    assert [(each.filename, each.category) for each in seen] == [(__file__, CacheWarning)]
    assert str(seen[0].message).endswith("HYBRID_INFER_CACHE_DIR or save_model_dir to a directory that you can write")


@pytest.mark.parametrize(
    "method", [lambda x: x, lambda x: {"n": 3, "x": x}, lambda x: None], ids=["same", "dict", "none"]
)
def test_a_method_that_computes_nothing_is_said_to(method: Any) -> None:
    hot = inference(method)
    x = torch.ones(2)
    assert hot(x) == method(x) if isinstance(method(x), dict) else hot(x) is method(x)
    assert list(counts()["fallbacks"]) == ["it computes nothing from its arguments"]


class Empty(torch.nn.Module):
    """A layer without a weight, as the wrapper of a schedule may be."""

    @inference
    def ramp(self, length: int) -> Any:
        return torch.arange(length) * 2


def test_a_method_that_is_given_no_tensor_and_has_none() -> None:
    """torch's tracer, which takes it for granted that there is one, says "not enough values to unpack"."""
    layer = Empty()
    for length in (3, 4, 3):
        assert layer.ramp(length).tolist() == [*range(0, 2 * length, 2)]
    assert set(counts()["fallbacks"]) <= {"it computes nothing from its arguments"}, counts()
    assert counts()["fallbacks"]


def test_the_exporter_says_nothing_where_no_logging_is_configured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no handler takes, Python's handler of last resort prints."""
    said = logging.getLogger("onnx_ir.passes")

    def speak(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            said.warning("of no interest")
        return x + 1

    monkeypatch.setattr(logging.root, "handlers", [])
    with torch.no_grad():
        inference(fallback="error")(speak)(X)
    assert "of no interest" not in capsys.readouterr().err


def test_blocks_that_are_wrapped_one_by_one_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Draws(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn_like(x)

    blocks = [inference(Draws().eval()) for _ in range(3)]
    with torch.no_grad():
        for block in blocks:
            block(X)
    assert [each.levelname for each in caplog.records if "runs eagerly" in each.getMessage()] == ["WARNING"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_int8_layers_packed_sequences_and_derivatives_are_named(caplog: pytest.LogCaptureFixture) -> None:
    linear = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
    quantised = torch.ao.quantization.quantize_dynamic(linear, {torch.nn.Linear}, dtype=torch.qint8)

    def packs(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return torch.nn.utils.rnn.pad_packed_sequence(packed)[0]

    def derives(x: torch.Tensor) -> Any:
        return torch.func.jacrev(torch.tanh)(x)

    with torch.no_grad():
        inference(quantised)(X)
        inference(packs)(X, torch.tensor([2, 1, 2, 1]))
        inference(derives)(X)
    said = [each.getMessage() for each in caplog.records if "runs eagerly" in each.getMessage()]
    for text, words in zip(said, ("as quantised layers do", "depends on the values", "derivatives"), strict=True):
        assert words in text, text


def test_of_a_call_that_the_method_refuses_no_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is at fault, and has its own error; that no engine multiplies float64 by float32 is nothing to tell."""
    layer = inference(torch.nn.Linear(4, 4))
    with torch.no_grad(), caplog.at_level("WARNING", "hybrid_infer"):
        for _ in range(3):
            with pytest.raises(RuntimeError, match="same dtype"):
                layer(torch.ones(2, 4, dtype=torch.float64))
        assert "runs eagerly" not in caplog.text
        for _ in range(2):
            layer(torch.ones(2, 4))
    assert counts()["hits"]
