"""Random programs of writers in place, views, other names, containers and branches: each call as eager code answers it.

What cannot be traced is answered eagerly, so that the results are right either way; some of the programs are served.
"""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

import hybrid_infer  # noqa: E402

pytestmark = [pytest.mark.paddle, pytest.mark.slow]

VIEWS = ("reshape([-1])", "flatten()[0:2]", "unsqueeze(0)", "transpose(list(range({0}.ndim))[::-1])", "detach()")
WRITERS = (
    "{0}.add_(paddle.full([], 2.0))", "{0}.scale_(1.5)", "{0}.clip_(-1.0, 2.0)", "paddle.tanh_({0})", "{0}.fill_(0.5)",
    "{0}.subtract_({0} * 0.5)", "{0}[..., 0:1] = 7.0", "{0} += 1", "paddle.assign({0} * 3, output={0})",
)  # fmt: skip
SHAPERS = (
    "{0}.unsqueeze_(0)", "{0}.reshape_([-1])", "{0}.transpose_(list(range({0}.ndim))[::-1])", "{0}.cast_('float64')",
)  # fmt: skip


def program(draw: random.Random) -> str:
    names, lines = ["x", "v0"], ["v0 = x * 1", "box = Box()"]

    def named(value: str) -> None:
        names.append(f"v{len(names)}")
        lines.append(f"{names[-1]} = {value}")

    for _ in range(draw.randint(2, 6)):
        one, other = draw.choice(names), draw.choice(names)
        kind = draw.randrange(8)
        if kind < 2:
            lines.append(draw.choice(WRITERS).format(one))
        elif kind == 2:
            lines.append(draw.choice(SHAPERS).format(draw.choice(names[1:])))
        elif kind == 3:
            named(f"{one}.{draw.choice(VIEWS)}".format(one))
        elif kind == 4:
            named(draw.choice(("{0}", "{0} * 2 + 1")).format(one))
        elif kind == 5:
            lines += [f"held = [{one}, {other}]", draw.choice(WRITERS[:6]).format("held[0]")]
            named("held[1]")
        elif kind == 6:
            lines += [f"box.y = {one}", draw.choice((*WRITERS[:6], SHAPERS[1])).format("box.y")]
            named("box.y * 1")
        else:
            limit = draw.choice((-1000, 0, 1000))
            lines += [f"if x.sum() > {limit}:", f"    {draw.choice((*WRITERS, SHAPERS[1])).format(one)}"]
    returned = draw.sample(names[1:], min(3, len(names) - 1))
    lines.append(f"return [{', '.join(f'{name} * 1.0' for name in returned)}]")
    return "import paddle\n\n\nclass Box:\n    pass\n\n\ndef method(x):\n" + "".join(f"    {line}\n" for line in lines)


def loaded(source: str, path: Path) -> Any:
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.method


def numbers(rows: int) -> Any:
    return paddle.to_tensor(np.random.default_rng(rows).standard_normal((rows, 3), dtype="float32"))


@pytest.mark.parametrize("seed", range(4))
def test_writers_in_place(seed: int, tmp_path: Path) -> None:
    hits = 0
    for count in range(8):
        source = program(random.Random(100 * seed + count))
        method = loaded(source, tmp_path / f"program_{seed}_{count}.py")
        fast = hybrid_infer.inference(method, verify="off", backend="onnxruntime")
        with paddle.no_grad():
            for rows in (2, 2, 4):
                mine, theirs = numbers(rows), numbers(rows)
                try:
                    expected = method(theirs)
                except ValueError:  # of a program that is none
                    break
                found = [*fast(mine), mine]
                for each, eager in zip(found, [*expected, theirs], strict=True):
                    assert each.shape == eager.shape and each.dtype == eager.dtype, source
                    np.testing.assert_allclose(each.numpy(), eager.numpy(), rtol=1e-4, atol=1e-5, err_msg=source)
        hits += sum(each["hits"] for each in hybrid_infer.stats().values())
        hybrid_infer.reset_stats()
    assert hits > 0
