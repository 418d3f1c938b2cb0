"""Autocast in the method itself, which has no effect in what is served where it has none eagerly, as on a CPU.

And around it, of which a program is told in full.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import grid, right_when_captured  # noqa: E402

from hybrid_infer import inference  # noqa: E402
from hybrid_infer.frontends import _paddle_autocast  # noqa: E402

pytestmark = [
    pytest.mark.paddle,
    pytest.mark.filterwarnings("ignore:amp_guard can only be enabled"),
    pytest.mark.skipif(paddle.is_compiled_with_cuda(), reason="there it has an effect"),
]
LINEAR = paddle.nn.Linear(4, 4)


def in_a_block(x: Any) -> Any:
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16", custom_white_list={"elementwise_add"}):
        y = LINEAR(x)
        enabled, kind = paddle.amp.is_autocast_enabled(), paddle.amp.get_autocast_dtype()
    with paddle.amp.auto_cast(False):
        return y, y + x, enabled, kind


def in_half_precision(x: Any) -> Any:
    with paddle.amp.auto_cast(True, None, None, "O2"):
        return LINEAR(x) if paddle.mean(x) > 0 else LINEAR(-x)


@paddle.amp.auto_cast(level="O1", dtype="bfloat16")  # type: ignore[untyped-decorator]
def around(x: Any) -> Any:
    return LINEAR(x)


def in_a_decorator(x: Any) -> Any:
    return around(x)


@pytest.mark.parametrize("method", [in_a_block, in_half_precision, in_a_decorator])
def test_autocast_in_the_method_has_no_effect_on_a_cpu(method: Any) -> None:
    right_when_captured(method, (grid(2, 4),), (-grid(3, 4),), captures=2)


def test_autocast_to_what_there_is_not_raises_as_eagerly() -> None:
    def method(x: Any) -> Any:
        with paddle.amp.auto_cast(dtype="float32"):
            return x * 2

    with paddle.no_grad(), pytest.raises(ValueError, match="dtype should be"):
        inference(method, verify="off")(grid(2))


class Device:
    """A place of a GPU, as far as the framework's guard asks."""

    is_gpu_place = is_xpu_place = is_custom_place = lambda self: True


@pytest.mark.parametrize("capability", [(6, 0), (7, 0), (8, 0)])
def test_autocast_to_a_type_that_a_gpu_is_too_old_for_has_no_effect(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]
) -> None:
    monkeypatch.setattr(paddle.device.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(paddle.version, "cuda", lambda: "12.6")
    monkeypatch.setattr(paddle.base.framework, "_current_expected_place", Device)
    found = []
    with _paddle_autocast.as_eagerly(), paddle.pir_utils.IrGuard():
        for dtype in ("float16", "bfloat16"):
            with paddle.amp.auto_cast(dtype=dtype):
                found.append(int(paddle.base.core._get_amp_attrs()._amp_level))
    assert found == [int(capability >= least) for least in ((7, 0), (8, 0))]


@pytest.mark.parametrize("promotes", [True, False])
def test_a_program_promotes_where_autocast_around_it_does(promotes: bool) -> None:
    program = paddle.static.Program()
    with paddle.pir_utils.IrGuard(), paddle.static.program_guard(program):
        x, half = paddle.static.data("x", [4, 4], "float32"), paddle.static.data("y", [4, 4], "bfloat16")
        with _paddle_autocast.within((2, "bfloat16", frozenset(), frozenset(), promotes)):
            found = (x + half).dtype
        after = paddle.base.core._get_amp_attrs()._use_promote
    assert found == (paddle.float32 if promotes else paddle.bfloat16) and not after


@pytest.mark.parametrize("promotes", [True, False])
def test_whether_it_promotes_is_part_of_the_surroundings(monkeypatch: pytest.MonkeyPatch, promotes: bool) -> None:
    tracer = SimpleNamespace(
        _amp_level=2, _amp_dtype="bfloat16", _use_promote=promotes, _get_amp_op_list=lambda: (set(), set())
    )
    monkeypatch.setattr(paddle.base.framework, "_dygraph_tracer", lambda: tracer)
    assert _paddle_autocast.state() == (2, "bfloat16", frozenset(), frozenset(), promotes)
