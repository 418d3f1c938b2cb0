"""Random products and attention, as plans of one step, for the kernels that work in tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import Case, _held

from hybrid_infer.backends.native import _size
from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._window import whole as whole_array

#: Around the sizes of tiles, fragments and what is copied at a time.
SIZES = st.sampled_from([1, 3, 8, 16, 31, 33, 64, 65, 72, 96, 104, 129, 136])
HALF = st.sampled_from(["float16", "bfloat16"])

#: Heads and tokens change places.
_TURNED = [0, 2, 1, 3]


def collected(strategy: Any, count: int) -> list[Any]:
    """So many examples, the same in every run."""
    made: list[Any] = []

    @settings(
        deadline=None, max_examples=count, suppress_health_check=list(HealthCheck), derandomize=True, database=None
    )  # fmt: skip
    @given(strategy)
    def collect(each: Any) -> None:
        made.append(each)

    collect()
    return made[:count]


def plan_of(step: Step, types: dict[str, str], shapes: dict[str, tuple[Any, ...]], symbolic: dict[str, Any]) -> Plan:
    """One step between inputs and a result; sizes that are words in `shapes` are numbers or symbols, as given."""
    values = {
        name: Value(dtype, tuple(symbolic.get(size, size) for size in shapes[name])) for name, dtype in types.items()
    }
    return Plan(list(step.inputs), list(step.outputs), [step], values, {}, 20)


def _fixed(sizes: dict[str, int], shape: tuple[Any, ...]) -> list[int]:
    return [sizes.get(size, size) for size in shape]


def _symbols(draw: Any, sizes: dict[str, int], shapes: dict[str, tuple[Any, ...]], free: set[str]) -> dict[str, Any]:
    """Each size as a number, or, for some of `free`, as the symbol of the first operand that has it."""
    found: dict[str, Any] = dict(sizes)
    for name in sorted(free):
        if draw(st.integers(0, 3)) == 0:
            where, axis = next((n, s.index(name)) for n, s in shapes.items() if name in s)
            found[name] = _size.atom("dim", where, axis)
    return found


def _sample(rng: Any, shape: list[int], dtype: str) -> Any:
    return _held(rng.standard_normal(shape) / 2, dtype)


@st.composite
def products(draw: Any) -> Case:
    """Any of both steps, turned or not, with any epilogue, over batches that are spread, in sizes of any kind."""
    dtype, sizes = draw(HALF), {"m": draw(SIZES), "n": draw(SIZES), "k": draw(st.sampled_from([0, 200]) | SIZES)}
    batch = draw(st.sampled_from([None, ((), ()), ((2,), (2,)), ((2, 1), (1, 3)), ((3,), (1,)), ((2, 3), (3,))]))
    turned = {"trans_a": draw(st.integers(0, 1)), "trans_b": draw(st.integers(0, 1))}
    a: tuple[Any, ...] = ("k", "m") if turned["trans_a"] else ("m", "k")
    b: tuple[Any, ...] = ("n", "k") if turned["trans_b"] else ("k", "n")
    shapes: dict[str, tuple[Any, ...]] = {"a": a, "b": b, "y": ("m", "n")}
    at: dict[str, Any] = dict(turned)
    if batch is None:
        if not turned["trans_a"] and draw(st.booleans()):
            shapes.update(a=(2, *a), y=(2, "m", "n"))
        if draw(st.booleans()):
            at["bias"], shapes["bias"] = 2, ("n",)
        if draw(st.booleans()):
            at["addend"], shapes["addend"] = len(shapes) - 1, shapes["y"]
        else:
            at["activation"] = draw(st.sampled_from(["", "relu", "gelu_tanh"]))
    else:
        first, second = batch
        shapes.update(a=(*first, *a), b=(*second, *b), y=(*np.broadcast_shapes(first, second), "m", "n"))
    names = [name for name in ("a", "b", "bias", "addend") if name in shapes]
    step = Step("gemm" if batch is None else "matmul", tuple(names), ("y",), at)
    symbolic = _symbols(draw, sizes, {name: shapes[name] for name in names}, {"m", "n", "k"})
    plan = plan_of(step, dict.fromkeys([*names, "y"], dtype), shapes, symbolic)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    feeds = {name: _sample(rng, _fixed(sizes, shapes[name]), dtype) for name in names}
    return f"{step.op} {dtype} {sizes} {dict(at)} {batch}", plan, [feeds]


@st.composite
def attentions(draw: Any, types: Any) -> Case:
    """Attention with any mask and order of axes; some rows are masked whole, some masked values are not numbers."""
    dtype = draw(types)
    sizes = {
        "s": draw(st.sampled_from([1, 5, 16, 63, 70])), "t": draw(st.sampled_from([0, 1, 7, 32, 64, 65, 130])),
        "d": draw(st.sampled_from([4, 8, 16, 20, 24, 64, 72])), "e": draw(st.sampled_from([8, 12, 16, 40, 64, 80])),
    }  # fmt: skip
    spread, shared = draw(st.booleans()), draw(st.booleans())
    whole: dict[str, tuple[Any, ...]] = {
        "q": (2, 2, "s", "d"), "k": (2, 1 if spread else 2, "t", "d"), "v": (1 if spread else 2, 2, "t", "e"),
        "y": (2, 2, "s", "e"),
    }  # fmt: skip
    at: dict[str, Any] = {"scale": draw(st.sampled_from([1.0, 0.25])), "zero_nan": draw(st.booleans()), "k_turned": 0}
    if shared:  # several heads of queries have the same keys and values
        heads = draw(st.sampled_from([1, 2]))
        at["groups"] = 2 // heads
        whole["k"], whole["v"] = (2, heads, "t", "d"), (2, heads, "t", "e")
    shapes = dict(whole)
    behind = draw(st.booleans())
    parts = (3,) if behind and draw(st.booleans()) else ()
    if behind:  # heads behind tokens, as a linear layer writes them, which may write all three operands side by side
        at["order"], shapes["y"] = _TURNED, tuple(whole["y"][axis] for axis in _TURNED)
        for name in ("q", "k", "v"):
            items, heads, tokens, length = whole[name]
            shapes[name] = (items, tokens, *parts, heads, length)
    elif draw(st.booleans()):
        at["k_turned"], shapes["k"] = 1, (*whole["k"][:2], "d", "t")
    kinds = dict.fromkeys(("q", "k", "v", "y"), dtype)
    kind = draw(st.sampled_from(["", "added", "added", "wide", "filled", "kept"]))
    names = ["q", "k", "v"]
    if kind:
        names.append("m")
        shapes["m"] = draw(st.sampled_from([("s", "t"), (1, 1, "s", "t"), (2, 1, 1, "t"), (1, 2, "s", "t"), ("s", 1)]))
        kinds["m"] = {"added": dtype, "wide": "float32"}.get(kind, "bool")
        if kind in ("filled", "kept"):
            at.update(fill=draw(st.sampled_from([float("-inf"), -1e4])), fills=int(kind == "filled"))
    # Sizes of heads stand in the source; which kernel serves hangs on them.
    symbolic = _symbols(draw, sizes, {name: shapes[name] for name in names}, {"s", "t"})
    if behind:
        held = [whole_array([symbolic.get(size, size) for size in shapes[name]]) for name in ("q", "k", "v")]
        seen = [each.cut(2, i, 1).without(2) if parts else each for i, each in enumerate(held)]
        at["windows"] = [*(each.turned(_TURNED).data() for each in seen), *([None] * (len(names) - 2))]
    plan = plan_of(Step("attention", tuple(names), ("y",), at), kinds, shapes, symbolic)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    feeds = {name: _sample(rng, _fixed(sizes, shapes[name]), kinds[name]) for name in names if name != "m"}
    if kind:
        feeds["m"] = _mask(rng, kind, _fixed(sizes, shapes["m"]), kinds["m"])
    if draw(st.booleans()):
        _spoil(rng, draw(st.sampled_from(["q", "v"])), feeds)
    return f"attention {dtype} {sizes} {at} {kind} {shapes.get('m')}", plan, [feeds]


def _mask(rng: Any, kind: str, shape: list[int], dtype: str) -> Any:
    """A third of all keys is masked, and one row whole."""
    hidden = rng.random(shape) < 1 / 3
    hidden[..., rng.integers(shape[-2]), :] = True
    if kind in ("filled", "kept"):
        return hidden if kind == "filled" else ~hidden
    return _held(np.where(hidden, -np.inf, rng.standard_normal(shape)), dtype)


def _spoil(rng: Any, name: str, feeds: dict[str, Any]) -> None:
    flat = feeds[name].reshape(-1)
    for value in (np.nan, np.inf, -np.inf) if flat.size else ():
        flat[rng.integers(flat.size)] = value


FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "products": lambda: collected(products(), 24),
    "attention on matrix units": lambda: collected(attentions(HALF), 24),
    "attention in float32": lambda: collected(attentions(st.just("float32")), 16),
}
