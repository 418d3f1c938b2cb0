"""The layer of the reference's documentation, unchanged: bfloat16 in, ten softmaxes, a cast, a linear.

Only the import differs from a program written for ``paddle.incubate.jit``. The layer stays in its default mode and
gradients stay on, as in the original. Paddle has no bfloat16 softmax for the CPU, so there the eager layer cannot run
at all: it is then compared with the same layer given the same values as float32. The same layer in PyTorch, whose CPU
kernels do cover bfloat16, follows.
"""

from __future__ import annotations

from typing import Any

import _table

options = _table.arguments(__doc__)

import paddle  # noqa: E402
import torch  # noqa: E402

from hybrid_infer.incubate.jit import inference  # noqa: E402

BATCH, HIDD, DTYPE = 4096, 1024, "bfloat16"
TOLERANCE = 2**-8  # of the largest result: half a unit in the last place of bfloat16


class ExampleLayer(paddle.nn.Layer):
    def __init__(self, hidd):
        super().__init__()
        self.fn = paddle.nn.Linear(hidd, hidd, bias_attr=False)

    def forward(self, x):
        for _ in range(10):
            x = paddle.nn.functional.softmax(x, -1)
        x = x.cast("float32")
        x = self.func(x)
        return x

    def func(self, x):
        x = x + x
        return self.fn(x)


class TorchExampleLayer(torch.nn.Module):
    def __init__(self, hidd):
        super().__init__()
        self.fn = torch.nn.Linear(hidd, hidd, bias=False)

    def forward(self, x):
        for _ in range(10):
            x = torch.nn.functional.softmax(x, -1)
        x = x.to(torch.float32)
        x = self.func(x)
        return x

    def func(self, x):
        x = x + x
        return self.fn(x)


def report(title: str, method: str, eager: _table.Run, decorated: _table.Run, label: str) -> None:
    measured = _table.compare((eager, decorated), (eager, decorated), options.seconds)
    eager_times, times, expected, found = measured
    difference = float((expected - found).detach().abs().max())
    allowed = TOLERANCE * float(expected.detach().abs().max())
    if found.dtype != expected.dtype or found.shape != expected.shape or not difference <= allowed:
        raise SystemExit(f"{title}: the decorated layer differs from the eager one by {difference:.1e}")
    _table.show(title, eager_times, times, difference, _table.served(method), label)


def eager_or_float32(layer: paddle.nn.Layer, x: Any) -> tuple[_table.Run, str]:
    """The eager layer on `x`, or on the same values as float32 where Paddle lacks a kernel, and which of them."""
    try:
        layer(x)
    except RuntimeError:
        wide = x.cast("float32")
        return lambda: layer(wide), "eager float32"
    return lambda: layer(x), "eager"


def main() -> None:
    paddle.seed(0)
    x = paddle.rand([BATCH, HIDD], dtype=DTYPE)
    mylayer = ExampleLayer(HIDD)
    undecorated = ExampleLayer(HIDD)
    undecorated.set_state_dict(mylayer.state_dict())
    mylayer = inference(mylayer)
    eager, label = eager_or_float32(undecorated, x)
    title = f"the reference's example, {BATCH} x {HIDD} {DTYPE}, Paddle {paddle.__version__}"
    report(title, "ExampleLayer.forward", eager, lambda: mylayer(x), label)

    torch.manual_seed(0)
    t = torch.rand(BATCH, HIDD, dtype=torch.bfloat16)
    layer, plain = TorchExampleLayer(HIDD), TorchExampleLayer(HIDD)
    plain.load_state_dict(layer.state_dict())
    layer = inference(layer)
    title = f"the same layer, {BATCH} x {HIDD} {DTYPE}, PyTorch {torch.__version__}"
    report(title, "TorchExampleLayer.forward", lambda: plain(t), lambda: layer(t), "eager")


if __name__ == "__main__":
    main()
