"""Releases of the frameworks and their exporters from which on results are known to be right.

Older ones may translate a method without an error and wrongly: torch up to 2.10 takes no form of an operator that is
handed to its exporter in place of its own. So they capture nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hybrid_infer._errors import TraceError

#: By distribution; setup.py asks for the same.
OLDEST = {
    "torch": (2, 11), "onnxscript": (0, 7),
    "paddlepaddle": (3, 3), "paddlepaddle-gpu": (3, 3), "paddle2onnx": (2, 1),
}  # fmt: skip

_BUILT_FROM_SOURCE = (0, 0)  # what Paddle calls itself then


def require(versions: Mapping[str, str], extra: str) -> None:
    """`versions`: of what capturing takes, by distribution, empty where it is missing. Raises TraceError.

    >>> require({"torch": "2.13.0+cpu", "onnxscript": "0.7.2"}, "torch")
    >>> require({"torch": "2.9.1"}, "torch")
    Traceback (most recent call last):
    hybrid_infer._errors.TraceError: torch 2.9.1 is older than 2.11, from which on it can be captured
    """
    for name, given in versions.items():
        if not given:
            raise TraceError(f"the package {name} is not installed", f"pip install 'hybrid_infer[{extra}]'")
        numbers = tuple(map(int, re.findall(r"\d+", given)[:2]))
        if _BUILT_FROM_SOURCE < numbers < OLDEST[name]:
            oldest = ".".join(map(str, OLDEST[name]))
            raise TraceError(
                f"{name} {given} is older than {oldest}, from which on it can be captured",
                f"pip install --upgrade 'hybrid_infer[{extra}]'",
            )
