"""Methods that check values: what eager raises, a served method raises."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, same

import hybrid_infer
from hybrid_infer import inference
from hybrid_infer._errors import ArgumentsRefused, EngineError, StaticModelError
from hybrid_infer.backends._cuda import _checks
from hybrid_infer.frontends import _torch_checks

pytestmark = pytest.mark.torch


def all_of_them(x: Any, mask: Any) -> Any:
    torch._check_tensor_all(x > 0, lambda: "negative")
    return x * 2


def a_number(x: Any, mask: Any) -> Any:
    torch._check_with(ValueError, (x > 0).all().item(), lambda: "negative")
    return x * 2


def two_numbers(x: Any, mask: Any) -> Any:
    torch._check(mask.sum().item() == 2, lambda: "two are wanted")
    torch._check_value(mask.sum().item() < x.shape[0], lambda: "too many")
    return x * 2


def a_selection(x: Any, mask: Any) -> Any:
    found = x[mask]
    torch._check(found.numel() == 2, lambda: "two are wanted")
    return found * 2


def a_range(x: Any, mask: Any) -> Any:
    return torch.arange(mask.sum().item() - 1) + x.sum()


def asynchronously(x: Any, mask: Any) -> Any:
    torch._assert_async((x > 0).all(), "negative")
    torch._assert_async(mask.sum() - 1)
    return x * 2


def asynchronously_of_a_number(x: Any, mask: Any) -> Any:
    torch._assert_async(mask.sum().reshape(1))
    return x * 2


def written_behind_it(x: Any, mask: Any) -> Any:
    torch._check(mask.any().item(), lambda: "none")
    x.mul_(2)
    return x + 1


def written_to_behind_it(x: Any, mask: Any) -> Any:
    flag, total = (x > 0).all(), mask.sum()
    torch._assert_async(flag, "negative")
    number = total.item()
    flag.fill_(True)
    total.add_(2)
    torch._check(number == 2, lambda: "two are wanted")
    return x * total


def several(x: Any, mask: Any) -> Any:
    number = mask.sum().item()
    torch._check(number > 1, lambda: "few")
    torch._check(number < 3, lambda: "many")
    torch._check(number != 0, lambda: "none")
    torch._check(number + 1 == x.shape[0], lambda: "all but one")
    return x * 2


METHODS: list[Callable[..., Any]] = [
    all_of_them, a_number, two_numbers, a_selection, a_range, asynchronously, asynchronously_of_a_number,
    written_behind_it, written_to_behind_it, several,
]  # fmt: skip


def outcome(function: Any, x: Any, mask: Any) -> Any:
    """What a call gives and leaves in its argument, or what it raises."""
    x = x.clone()
    try:
        return function(x, mask), x
    except (RuntimeError, ValueError) as fault:
        return type(fault), str(fault).splitlines()[0], x


GOOD = torch.ones(3), torch.tensor([True, True, False])
BAD = -torch.ones(3), torch.zeros(3, dtype=torch.bool)


def alike(found: Any, expected: Any) -> None:
    for mine, eager in zip(found, expected, strict=True):
        if isinstance(eager, torch.Tensor):
            same(mine, eager)
        else:
            assert mine == eager


#: OpenVINO crashes at an index that is out of range; the native engine has no results of sizes that values decide.
WITHOUT = {("openvino", a_selection), ("native", a_selection), ("native", a_range)}
PAIRS = [(e, method) for e in ("onnxruntime", "openvino", "native") for method in METHODS if (e, method) not in WITHOUT]


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("engine, method", PAIRS, ids=lambda each: getattr(each, "__name__", each))
def test_what_eager_raises_is_raised(method: Any, verify: str, engine: str) -> None:
    if engine == "openvino":
        pytest.importorskip("openvino")
    hot = inference(method, backend=engine, verify=verify)
    with torch.no_grad():
        for call in (GOOD, GOOD, BAD, GOOD, BAD):
            alike(outcome(hot, *call), outcome(method, *call))
    found = counts()
    assert (found["captures"], found["hits"]) == (1, 3 if verify == "off" else 2), found
    assert not found["eager_calls"] and not found["fallbacks"], found


FORMS: dict[str, Callable[[Any, int], Any]] = {
    "an integer argument": lambda number, n: number == n,
    "one more": lambda number, n: number == n + 1,
    "a fraction": lambda number, n: number > 1.5,
    "a product": lambda number, n: number * 0.5 > 0.9,
    "a quotient": lambda number, n: number / n >= 1,
    "half of it": lambda number, n: number // 2 == n // 2,
    "a rest": lambda number, n: number % 2 == n % 2,
    "a bit": lambda number, n: (number & 2) == 2,
    "a square": lambda number, n: number**2 > 3,
    "both": lambda number, n: (number > 1) & (number < n + 2),
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_checked_in_any_form(form: str) -> None:
    """Of some, the tracer makes nothing; a method with one of those stays eager."""

    def method(x: Any, n: int) -> Any:
        torch._check(FORMS[form]((x > 0).sum().item(), n), lambda: "not so")
        return x * n

    hot = inference(method, backend="onnxruntime", verify="off", max_versions=32)
    with torch.no_grad():
        for n in (2, 2, 3, 4):
            for above in (n, n + 1, 1, 2, 3, 0):
                x = torch.cat([torch.ones(above), torch.zeros(max(0, 5 - above))])
                alike(outcome(hot, x, n), outcome(method, x, n))


def test_sizes_against_each_other() -> None:
    def method(x: Any, y: Any) -> Any:
        found = x[x > 0]
        torch._check(found.shape[0] == y.shape[0] + 1, lambda: "one more is wanted")
        return y * 2 + found.sum()

    hot = inference(method, backend="onnxruntime", verify="off", max_versions=32)
    with torch.no_grad():
        for size in (2, 3, 4):
            for above in (size + 1, size, size + 2, 0):
                x, y = torch.cat([torch.ones(above), torch.zeros(8 - above)]), torch.ones(size)
                alike(outcome(hot, x, y), outcome(method, x, y))


def test_sizes_that_vary(captures: Any) -> None:
    hot = inference(two_numbers, backend="onnxruntime")
    with torch.no_grad():
        for size in (3, 4, 5, 6):
            mask = torch.zeros(size, dtype=torch.bool)
            for n in (2, 1, 3, 2):
                mask[:n], mask[n:] = True, False
                alike(outcome(hot, torch.ones(size), mask), outcome(two_numbers, torch.ones(size), mask))
    assert len(captures) == 2


def test_a_method_that_begins_with_what_fails() -> None:
    hot = inference(all_of_them, backend="onnxruntime")
    with torch.no_grad():
        for call in (BAD, BAD, GOOD, GOOD, BAD):
            alike(outcome(hot, *call), outcome(all_of_them, *call))


def test_checks_of_sizes_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, as_result = [], _torch_checks.as_result
    monkeypatch.setattr(_torch_checks, "as_result", lambda *given: checked.append(as_result(*given)) or checked[-1])

    class Sized(torch.nn.Module):
        @inference(backend="onnxruntime")
        def forward(self, x: Any, index: Any) -> Any:
            torch._check(x.shape[0] < 9)
            torch._check(x.dim() == 1, lambda: "a row is wanted")
            return x[index > 0]

    layer = Sized()
    with torch.no_grad():
        for size in (3, 4, 5):
            same(layer(torch.ones(size), torch.ones(size)), torch.ones(size))
        with pytest.raises(RuntimeError):
            layer(torch.ones(9), torch.ones(9))
        with pytest.raises(RuntimeError, match="a row is wanted"):
            layer(torch.ones(3, 3), torch.ones(3))
    assert checked and not any(checked)


def test_the_next_instance_and_a_saved_model(tmp_path: Any) -> None:
    class Checked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        @inference(backend="onnxruntime")
        def forward(self, x: Any) -> Any:
            torch._check_tensor_all(x > 0, lambda: "negative")
            return x * self.weight, x + 1

    for _ in range(2):
        layer = Checked()
        with torch.no_grad():
            for _ in range(2):
                same(layer(GOOD[0]), (GOOD[0], GOOD[0] + 1))
            with pytest.raises(RuntimeError, match="negative"):
                layer(BAD[0])
    assert counts()["captures"] == 1
    hybrid_infer.save(layer, str(tmp_path / "saved"), input_spec=[GOOD[0]])
    loaded = hybrid_infer.load(str(tmp_path / "saved"))
    same(loaded(GOOD[0]), (GOOD[0], GOOD[0] + 1))
    with pytest.raises(StaticModelError, match="a check of values that the method makes"):
        loaded(BAD[0])


@pytest.mark.parametrize("size", [3, None])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_fraction(goes_on: bool, size: int | None) -> None:
    """The tracer keeps such checks of some numbers alone."""

    def method(x: Any, mask: Any) -> Any:
        number = x.max().item()
        torch._check_value(number <= 3, lambda: "too large")
        return x * number if goes_on else x * 2

    hot = inference(method, backend="onnxruntime", verify="off")
    with torch.no_grad():
        for n, scale in enumerate((1, 2, 5, 1, 5)):
            x = torch.ones(size or n + 2) * scale
            alike(outcome(hot, x, None), outcome(method, x, None))


def test_gradients() -> None:
    weight = torch.ones(3, requires_grad=True)

    def method(x: Any) -> Any:
        torch._check_tensor_all(x > 0, lambda: "negative")
        return x * weight

    hot = inference(method, backend="onnxruntime")
    for _ in range(3):
        hot(GOOD[0] * 2).sum().backward()
        with pytest.raises(RuntimeError, match="negative"):
            hot(BAD[0])
    assert weight.grad is not None
    same(weight.grad, torch.full([3], 6.0))


def test_a_check_inside_of_a_branch_keeps_a_method_eager() -> None:
    def checking(x: Any) -> Any:
        torch._assert_async((x > 0).all(), "negative")
        return x * 2

    def method(x: Any) -> Any:
        return torch.cond(x.sum() > 5, lambda x: x + 1, checking, (x,))

    hot = inference(method, backend="onnxruntime")
    with torch.no_grad():
        same(hot(GOOD[0]), GOOD[0] * 2)
        with pytest.raises(RuntimeError, match="negative"):
            hot(BAD[0])
        same(hot(GOOD[0] * 3), GOOD[0] * 3 + 1)


@dataclasses.dataclass
class _Memory:
    busy: bool

    def capturing(self) -> bool:
        return self.busy


def test_on_a_gpu() -> None:
    _checks.possible("native", _Memory(False))  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="while a CUDA graph is captured"):
        _checks.possible("native", _Memory(True))  # type: ignore[arg-type]
    _checks.hold("native", [GOOD[0], torch.tensor(True)])
    with pytest.raises(ArgumentsRefused, match="does not hold"):
        _checks.hold("native", [GOOD[0], torch.tensor(False)])


def test_a_size_that_is_noted_as_the_number_it_is_checked_to_be_is_counted() -> None:
    """So torch notes it up to 2.11."""
    x, mask = GOOD
    with _torch_checks.noted() as made:
        program = torch.export.export(Checked(a_selection), (x, mask), strict=False)
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.sym_size.int:
            node.meta["val"] = 2
    assert _torch_checks.as_result(program, made)
    output = program.graph.output_node()
    (equal, two) = output.args[0][-1].args
    assert equal.target is torch.ops.aten.sum.default and two.args == (2,)


def test_a_truth_that_is_asserted_as_a_number_is_a_result() -> None:
    """So torch writes it up to 2.11."""
    x, mask = GOOD
    with _torch_checks.noted() as made:
        program = torch.export.export(Checked(a_number), (x, mask), strict=False)
    for node in program.graph.nodes:
        if node.target is torch.sym_ite:
            node.target, node.args = _torch_checks._AS_NUMBER, node.args[:1]
    assert _torch_checks.as_result(program, made)
    assert program.graph.output_node().args[0][-1].meta["val"].dtype is torch.bool
    assert "Eq(u0, 1)" in _torch_checks.kept(program)
    _torch_checks.forget_truths(program)
    assert not {_torch_checks._AS_NUMBER, *_torch_checks._SCALARS} & {n.target for n in program.graph.nodes}


def test_a_truth_is_checked_where_a_size_varies() -> None:
    hot = inference(a_number, backend="onnxruntime")
    with torch.no_grad():
        for size in (2, 3, 4):
            assert outcome(hot, torch.ones(size), GOOD[1])[0].shape == (size,)
        alike(outcome(hot, -torch.ones(4), GOOD[1]), outcome(a_number, -torch.ones(4), GOOD[1]))
    assert counts()["captures"] == 2 and not counts()["fallbacks"], counts()


class Checked(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, mask: Any) -> Any:
        return (self.function(x, mask),)
