"""Texts of sizes that vary: what a method looks up by one is another thing for each size; a message is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_support import served, twice

from hybrid_infer import inference

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


@pytest.mark.parametrize("function", [_asserts, _prints])
def test_a_message_fixes_no_size(function: Any) -> None:
    hot = inference(backend="onnxruntime")(function)
    for n in (4, 5, 7, 9):
        twice(hot, function, torch.rand(n, 3))
    served(captures=2)
