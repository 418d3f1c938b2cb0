"""``max()`` and ``min()`` of sizes: Python asks for the truth of a comparison, which a trace may not know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hybrid_infer.frontends._paddle_watch import is_number


def _extreme(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """As the program asks for it where that is known of the sizes, else computed."""
    import paddle

    numbers = [each for each in given if type(each) is int or is_number(each)]
    if named or len(given) < 2 or len(numbers) < len(given) or all(type(each) is int for each in given):
        return function(*given, **named)
    try:
        return function(*given)
    except TypeError:  # it is not
        values = [paddle.full([], each, "int64") if type(each) is int else paddle.cast(each, "int64") for each in given]
        return functools.reduce(paddle.maximum if function is max else paddle.minimum, values)


#: By the names that the code of a method has for them.
EXTREMES = {"max": functools.partial(_extreme, max), "min": functools.partial(_extreme, min)}
