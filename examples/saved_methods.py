"""What can be saved: several methods of a layer, a function, nested arguments, a flag, and a half-precision layer.

Each is saved, loaded and called, and the largest difference from the eager result is printed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import _table

options = _table.arguments(
    __doc__, lambda parser: parser.add_argument("framework", nargs="?", choices=["torch", "paddle"], default="torch")
)

import numpy as np  # noqa: E402

from hybrid_infer import InputSpec, inference, load, save  # noqa: E402

OUT = Path("out/examples")

Row = tuple[str, str, float]


def torch() -> SimpleNamespace:
    """What the cases below need of torch, under one name for both frameworks."""
    import torch
    from torch import nn

    return SimpleNamespace(
        Layer=nn.Module, Linear=nn.Linear, tensor=torch.from_numpy, array=lambda x: x.float().numpy(),
        softmax=lambda x: torch.softmax(x, -1), narrow=lambda x: x.bfloat16(), wide=lambda x: x.float(),
        no_grad=torch.no_grad, rounding=4e-3,
    )  # fmt: skip


def paddle() -> SimpleNamespace:
    import paddle
    from paddle import nn

    return SimpleNamespace(
        Layer=nn.Layer, Linear=nn.Linear, tensor=paddle.to_tensor, array=lambda x: x.astype("float32").numpy(),
        softmax=lambda x: nn.functional.softmax(x, -1), narrow=lambda x: x.cast("bfloat16"),
        wide=lambda x: x.cast("float32"), no_grad=paddle.no_grad, rounding=4e-3,
    )  # fmt: skip


own = {"torch": torch, "paddle": paddle}[options.framework]()


def values(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def difference(found: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(found) - own.array(expected)).max())


class Translator(own.Layer):  # type: ignore[misc,name-defined]
    """A layer with two methods that are served, and that share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = own.Linear(8, 8), own.Linear(8, 2)

    @inference(input_spec=[InputSpec([None, 8])])
    def forward(self, x: Any) -> Any:
        return self.head(self.shared(x))

    @inference(input_spec=[InputSpec([None, 8])])
    def encode(self, x: Any) -> Any:
        return {"code": self.shared(x)}


def two_methods() -> Row:
    layer = Translator()
    save(layer, OUT / "two_methods")  # no spec here: each method brings its own
    static, x = load(OUT / "two_methods"), values(5, 8)
    plain = difference(static(x), layer(own.tensor(x)))
    code = difference(static.encode(x)["code"], layer.encode(own.tensor(x))["code"])
    return "two methods", f"{', '.join(static.methods)}; {len(static.state_dict())} weights", max(plain, code)


scale = own.Linear(8, 3)


def scaled(x: Any, factor: float = 2.0) -> Any:
    """A function: the layer that it refers to is saved with it."""
    return scale(x) * factor


def a_function() -> Row:
    save(scaled, OUT / "function", [InputSpec([None, 8], name="given")])
    static, x = load(OUT / "function"), values(4, 8)
    return "a function", f"weights {', '.join(static.state_dict())}", difference(static(x=x), scaled(own.tensor(x)))


class Mixer(own.Layer):  # type: ignore[misc,name-defined]
    """A method whose arguments are a pair in a list, and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = own.Linear(4, 4)

    def forward(self, pair: Any, more: Any) -> Any:
        return self.linear(pair[0]) + pair[1] * more["gain"]


def nested_arguments() -> Row:
    layer = Mixer()
    save(layer, OUT / "nested", [[InputSpec([None, 4]), InputSpec([4])], {"gain": InputSpec([1])}])
    static, arrays = load(OUT / "nested"), (values(3, 4), values(4), values(1))
    first, second, gain = map(own.tensor, arrays)
    expected = layer([first, second], {"gain": gain})
    names = [spec.name for spec in (*static.input_spec[0], static.input_spec[1]["gain"])]
    return "nested arguments", ", ".join(names), difference(static([*arrays[:2]], {"gain": arrays[2]}), expected)


class Signed(own.Layer):  # type: ignore[misc,name-defined]
    """A method with a flag: each of its values that was seen is a graph of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = own.Linear(8, 2)

    @inference
    def forward(self, x: Any, negative: bool = False) -> Any:
        found = self.linear(x)
        return -found if negative else found


def a_flag() -> Row:
    layer, x = Signed(), values(4, 8)
    layer(own.tensor(x)), layer(own.tensor(x), negative=True)
    save(layer, OUT / "flag")  # no spec at all: the calls above say what the method takes
    static = load(OUT / "flag")
    worst = max(difference(static(x, flag), layer(own.tensor(x), flag)) for flag in (False, True))
    return "a flag with two values", "negative=False, True", worst


class Softmaxes(own.Layer):  # type: ignore[misc,name-defined]
    """Ten softmaxes in bfloat16, then a linear layer in another method, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = own.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        for _ in range(10):
            x = own.softmax(x)
        return self.last(own.wide(x))

    def last(self, x: Any) -> Any:
        return self.linear(x + x)


def half_precision() -> Row:
    layer = Softmaxes()
    save(layer, OUT / "softmaxes", [InputSpec([None, 16], "bfloat16")])
    static, x = load(OUT / "softmaxes"), own.narrow(own.tensor(values(64, 16)))
    expected = layer(own.wide(x))  # in float32: Paddle has no bfloat16 softmax on a CPU
    found = own.array(static(x))
    return "softmaxes in bfloat16", f"takes {static.input_spec[0].dtype}", difference(found, expected)


def main() -> None:
    cases: list[Callable[[], Row]] = [two_methods, a_function, nested_arguments, a_flag, half_precision]
    with own.no_grad():
        rows = [case() for case in cases]
    _table.grid(
        f"saved, loaded and called with {options.framework}",
        [("", "of the model", "difference"), *((case, told, f"{worst:.1e}") for case, told, worst in rows)],
    )
    for case, _, worst in rows:
        if not worst <= (own.rounding if "bfloat16" in case else 1e-5):
            raise SystemExit(f"{case}: the static model differs from the eager one by {worst:.1e}")


if __name__ == "__main__":
    logging.getLogger("hybrid_infer").setLevel(logging.ERROR)
    main()
