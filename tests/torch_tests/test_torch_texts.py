"""Texts of sizes that vary: what a method looks up by one is another thing for each size; a message is not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch_support import served, twice

from hybrid_infer import inference
from hybrid_infer.frontends import _torch_texts

_LOGGER = logging.getLogger("rows")

TABLE = {"7": 3.0, "n7": 5.0, "(7, 3)": 7.0, "[7]": 9.0, "torch.Size([7, 3])": 11.0, "True": 13.0, "n3.5": 15.0}


def _key(x: torch.Tensor) -> str:
    key = f"n{x.shape[0]}"
    return key


def _collected(x: torch.Tensor) -> Any:
    keys: list[str] = []
    keys.append(f"n{x.shape[0]}")
    return x * TABLE.get(keys[0], 2.0), keys


WAYS: dict[str, Any] = {
    "formatted": lambda x: x * TABLE.get(f"n{x.shape[0]}", 2.0),
    "str": lambda x: x * TABLE.get(str(x.shape[0]), 2.0),
    "added": lambda x: x * TABLE.get("n" + repr(x.shape[0]), 2.0),
    "percent": lambda x: x * TABLE.get("n%s" % x.shape[0], 2.0),  # noqa: UP031
    "format": lambda x: x * TABLE.get("n{}".format(x.shape[0]), 2.0),  # noqa: UP032
    "compared": lambda x: x * (5.0 if f"n{x.shape[0]}" == "n7" else 2.0),
    "found": lambda x: x * (5.0 if f"n{x.shape[0]}" in TABLE else 2.0),
    "sizes": lambda x: x * TABLE.get(f"{x.shape}", 2.0),
    "a list": lambda x: x * TABLE.get(str([x.shape[0]]), 2.0),
    "a fraction": lambda x: x * TABLE.get(f"n{x.shape[0] / 2}", 2.0),
    "a variable": lambda x: x * TABLE.get(_key(x), 2.0),
    "kept": _collected,
    "joined": lambda x: x * TABLE.get("".join(["n", str(x.shape[0])]), 2.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_looked_up_by_a_text_is_that_of_each_size(way: str) -> None:
    eager = WAYS[way]
    hot = inference(backend="onnxruntime")(eager)
    for n in (4, 5, 7):
        twice(hot, eager, torch.rand(n, 3) + 1)


def _asserts(x: torch.Tensor) -> torch.Tensor:
    torch._assert(x.shape[0] > 1, f"{x.shape[0]} rows, of {x.shape}, are too few")
    torch._check(x.shape[0] > 1, lambda: f"{x.shape[0]} rows")
    return x * 2


def _prints(x: torch.Tensor) -> torch.Tensor:
    print(x.shape[0], f"{x.shape} rows", sep=" ")
    print("%s rows" % (x.shape[0],))  # noqa: UP031
    return x * 2


def _checks_as_transformers_do(x: torch.Tensor) -> torch.Tensor:
    utils = pytest.importorskip("transformers.utils")
    rows = (x.sum(1) > 0).sum()
    utils.torch_compilable_check(rows * x.shape[1] == x.numel(), f"tokens: {rows}, features: {x.shape[0]}")
    return x * 2


@pytest.mark.parametrize("function", [_asserts, _prints, _checks_as_transformers_do])
def test_a_message_fixes_no_size(function: Any) -> None:
    hot = inference(backend="onnxruntime")(function)
    for n in (4, 5, 7, 9):
        twice(hot, function, torch.rand(n, 3))
    served(captures=2)


def _in_variables(x: torch.Tensor) -> torch.Tensor:
    message = f"{x.shape[0]} rows"
    message += f" of {x.shape[1]}"
    _LOGGER.debug(message)
    with torch.profiler.record_function("of " + str(x.shape[0])):
        _LOGGER.debug("{} of {}, ".format(x.shape[0], str(x.shape[1]).rjust(3)) + str(x.dtype))  # noqa: UP032
    return x * 2


def _in_a_log(x: torch.Tensor) -> Any:
    log: list[str] = []
    log.append(f"n{x.shape[0]}")
    return x * TABLE.get(log[0], 2.0), log


def _put_down_and_printed(x: torch.Tensor) -> torch.Tensor:
    known: dict[str, float] = {}
    print(known.setdefault(f"n{x.shape[0]}", 3.0))
    return x * known.get("n7", 1.0)


def test_what_a_message_is_called_and_how_it_is_put_together_is_nothing_to_the_size() -> None:
    hot = inference(backend="onnxruntime", verify="off")(_in_variables)
    for n in (4, 5, 7, 9):
        twice(hot, _in_variables, torch.rand(n, 3))
    served(captures=2)


@pytest.mark.parametrize("function", [_in_a_log, _put_down_and_printed])
def test_what_looks_like_a_message_and_is_kept_is_that_of_each_size(function: Any) -> None:
    hot = inference(backend="onnxruntime", verify="off")(function)
    for n in (4, 5, 7):
        twice(hot, function, torch.rand(n, 3) + 1)


TOLD = (
    "print(n)",
    'print(f"a {n} b", n, "%s" % n, "{}".format(n), str(n), sep="")',
    'logger.info("a " + str(n) + " b")',
    'logger.debug("x".join(map(str, [n, n])).upper(), 3, extra={"a": 1})',
    'logger.warning("len %s" % (n,))',
    'print(f"{n!r:>5}", *[1, 2], sep="")',
    'print(*[f"{n}"], **{})',
    'k = f"{n}"; k = k + "b"; logger.debug(k); logger.debug("%s", k)',
    'k = f"{n}"; k += f"{n}"; print(k)',
    'with torch.profiler.record_function(f"{n}"): pass',
    'torch._assert(log is not None, f"{n}")',
)
KEPT = (
    'print(table.get(f"{n}"))',
    'log.append(f"{n}")',
    'log += [f"{n}"]',
    'k = [f"{n}"]; m = log; m += k; print(m)',
    'print(k := f"{n}"); table.get(k)',
    'k = f"{n}"; print(k); table.get(k)',
    'k = m = f"{n}"; print(k); table.get(m)',
    'k = f"{n}"; print(k); m = lambda: k',
    'k = f"{n}"; print(locals())',
    'a, b = f"{n} {n}".split(); print(b)',
    'k = f"{n}" if log else str(n); print(k); table.get(k)',
    'log.append(print) or log.extend((print, f"{n}"))',
    'for k in f"{n}": print(k)',
    'if f"{n}" == "7": print(7)',
    'return f"{n}"',
)


@pytest.mark.parametrize("told, statements", [*((True, each) for each in TOLD), *((False, each) for each in KEPT)])
def test_a_size_is_fixed_unless_its_text_is_only_told(told: bool, statements: str) -> None:
    env = ShapeEnv()
    rows = FakeTensorMode(shape_env=env).from_tensor(torch.rand(7, 3), static_shapes=False).shape[0]
    names: dict[str, Any] = {"table": {}, "logger": _LOGGER, "torch": torch}
    exec("def method(n, log):\n    " + statements.replace("; ", "\n    "), names)
    with _torch_texts.as_numbers():
        names["method"](rows, [])
    assert (not env.guards and not env.replacements) is told
