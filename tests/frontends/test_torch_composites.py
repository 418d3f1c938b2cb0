"""The kernels of torch's composite operators, which an export sees to once and quickly."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._export import utils  # noqa: E402
from torch._ops import OperatorBase  # noqa: E402
from torch._subclasses.fake_impls import op_implementations_dict as rules  # noqa: E402
from torch.export import exported_program  # noqa: E402

from hybrid_infer.frontends import _torch_composites  # noqa: E402

pytestmark = pytest.mark.torch
KEY = torch._C.DispatchKey


class Normalised(torch.nn.Module):
    """With operators that consist of others: some have a form in ONNX and stay whole, some have none."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = torch.nn.GroupNorm(2, 4), torch.nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.silu(self.dense(self.norm(x))).tile(2).diff().flatten(1)


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that looked all operators up, by name."""
    found: list[str] = []
    plain = utils._materialize_cpp_cia_ops
    monkeypatch.setattr(
        utils, "_materialize_cpp_cia_ops", lambda: found.append(threading.current_thread().name) or plain()
    )
    return found


def state() -> dict[Any, Any]:
    return {operator: dict(operator.py_kernels) for operator in utils._collect_all_valid_cia_ops()}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_same_model_and_nothing_left_behind(looked_up: list[str]) -> None:
    program = torch.export.export(Normalised(), (torch.randn(2, 4, 6),))
    expected = torch.onnx.export(program, (), dynamo=True, verbose=False).model_proto
    assert len(looked_up) > 2
    functions = utils._materialize_cpp_cia_ops, vars(OperatorBase)["py_impl"]
    before = state()
    for _ in range(2):
        looked_up.clear()
        with _torch_composites.quick():
            found = torch.onnx.export(program, (), dynamo=True, verbose=False).model_proto
        assert len(looked_up) == 1
        assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
        assert (utils._materialize_cpp_cia_ops, vars(OperatorBase)["py_impl"]) == functions
        assert state() == before and not rules.keys() & before.keys()


def test_an_operator_that_comes_to_be_between_two_exports_is_seen() -> None:
    with torch.library._scoped_library("hybrid_infer_tests", "DEF") as library:
        for name in ("first", "second"):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x * 2, "CompositeImplicitAutograd")
            with _torch_composites.quick():
                assert f"hybrid_infer_tests::{name}" in {o.name() for o in utils._collect_all_valid_cia_ops()}


def test_other_threads_look_up_for_themselves(looked_up: list[str]) -> None:
    with _torch_composites.quick():
        utils._materialize_cpp_cia_ops()
        for name in ("a", "b"):
            thread = threading.Thread(target=lambda: utils._materialize_cpp_cia_ops(), name=name)
            thread.start()
            thread.join()
        utils._materialize_cpp_cia_ops()
    assert looked_up == ["MainThread", "a", "b"]


@pytest.mark.parametrize("quick", [False, True])
def test_what_an_operator_refuses_it_refuses(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = torch.ops.aten.tile.default
    monkeypatch.setattr(operator, "py_kernels", {})
    first, second = (lambda x: x), (lambda x: 2 * x)
    with _torch_composites.quick() if quick else torch.no_grad():
        assert operator.py_impl(KEY.CPU)(first) is first
        with pytest.raises(RuntimeError, match="override"):
            operator.py_impl(KEY.CPU)(second)
        with pytest.raises(AssertionError, match="Python"):
            operator.py_impl(KEY.Python)(first)
        with pytest.raises(AssertionError):
            operator.py_impl("CPU")(first)
    assert operator.py_kernels == {KEY.CPU: first}


def test_a_release_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, "_materialize_cpp_cia_ops")
    monkeypatch.delattr(exported_program, "_override_composite_implicit_decomp")
    with _torch_composites.quick():
        assert not hasattr(utils, "_materialize_cpp_cia_ops")
    assert not hasattr(utils, "_materialize_cpp_cia_ops")


@pytest.fixture
def kernels_given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """To how many operators torch gives kernels itself, where they are decomposed by some functions; all have them."""
    given: list[Any] = []
    plain = OperatorBase.py_impl
    monkeypatch.setattr(OperatorBase, "py_impl", lambda operator, key: given.append(operator) or plain(operator, key))
    monkeypatch.setattr(_torch_composites, "_at_once", lambda there: there)
    monkeypatch.setattr(_torch_composites, "_given", {})

    def enter(operators: dict[Any, Any]) -> int:
        given.clear()
        before = {operator: dict(operator.py_kernels) for operator in operators}
        with _torch_composites.quick(), exported_program._override_composite_implicit_decomp(operators):
            for operator, by in operators.items():
                assert operator.py_kernels[KEY.CompositeImplicitAutograd] is by or isinstance(by, functools.partial)
                assert len(operator.py_kernels) > 20 and operator in rules
        assert {operator: dict(operator.py_kernels) for operator in operators} == before
        assert not rules.keys() & operators.keys()
        return len(set(given))

    return enter


def test_an_operator_is_given_its_kernels_once(kernels_given: Callable[..., int]) -> None:
    tile, diff = torch.ops.aten.tile.default, torch.ops.aten.diff.default
    whole = utils._special_op_to_preserve_cia
    assert kernels_given({tile: whole, diff: utils._get_decomp_for_cia(diff)}) == 2
    assert kernels_given({tile: whole, diff: utils._get_decomp_for_cia(diff)}) == 0  # by another one of the same
    assert kernels_given({tile: lambda x: x, diff: utils._get_decomp_for_cia(diff)}) == 1
    assert kernels_given({tile: whole}) == 1
    diff.py_impl(KEY.Meta)(lambda x: x)
    try:
        assert kernels_given({tile: whole, diff: utils._get_decomp_for_cia(diff)}) == 1  # it has another kernel now
    finally:
        del diff.py_kernels[KEY.Meta]
        diff._dispatch_cache.clear()


def test_a_function_of_another_release_is_left_as_it_is(
    kernels_given: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_torch_composites, "_KNOWN", _torch_composites._KNOWN - {"py_kernels"})
    operators = {torch.ops.aten.tile.default: utils._special_op_to_preserve_cia}
    assert kernels_given(operators) == kernels_given(operators) == 1


def test_an_error_meanwhile_leaves_nothing_behind() -> None:
    tile = torch.ops.aten.tile.default
    before = dict(tile.py_kernels)
    for _ in range(2):
        with (
            pytest.raises(ZeroDivisionError),
            _torch_composites.quick(),
            exported_program._override_composite_implicit_decomp({tile: utils._special_op_to_preserve_cia}),
        ):
            raise ZeroDivisionError
        assert tile.py_kernels == before and tile not in rules
