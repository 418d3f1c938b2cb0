"""Paddle, from its C++ side and its Python side, told to say less for a while."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from hybrid_infer._unwarned import unwarned


@contextmanager
def quiet(errors: bool = False) -> Iterator[None]:
    """Keep the framework's remarks on a trace out of the user's log and warnings; with `errors`, those as well."""
    import paddle
    from paddle.jit.dy2static.logging_utils import TranslatorLogger

    logger = TranslatorLogger().logger
    python_level = logger.level
    logger.setLevel("ERROR")
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(paddle.base.libpaddle.__file__), "_ZN3fLI17FLAGS_minloglevelE")
    except (OSError, ValueError):
        level = ctypes.c_int(0)  # a build that hides the symbol stays as talkative as it is
    before, level.value = level.value, max(level.value, 3 if errors else 2)
    try:
        with unwarned():
            yield
    finally:
        level.value = before
        logger.setLevel(python_level)
