"""``inference`` where programs written for ``paddle.incubate.jit`` look for it: change the import, keep the program."""

from typing import Any

from hybrid_infer._api import inference

__all__ = ["inference", "is_inference_mode"]


def is_inference_mode(function: Any) -> bool:
    """Does a decorated method give its only result bare, out of the tuple in which the method returns it? Here: never.

    Paddle's does, so programs ask this to know which of the two they were given:
    ``sample if is_inference_mode(decode) else sample[0]``. `hybrid_infer.is_inference_mode` says whether a method is
    decorated.

    >>> from hybrid_infer.incubate.jit import inference, is_inference_mode
    >>> def pair(x):
    ...     return (x + x,)
    >>> is_inference_mode(inference(pair))
    False
    """
    return False
