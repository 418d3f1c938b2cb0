"""The width of Paddle's thread pool, asked of the OpenMP library that its package ships."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
from typing import Any


@functools.cache
def _openmp() -> Any:
    """The library as loaded in this process; None where the build uses another."""
    import paddle

    folder = os.path.join(os.path.dirname(paddle.__file__), "libs")
    for path in sorted(glob.glob(os.path.join(folder, "lib[ig]omp*"))):
        try:
            return ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        except OSError:
            continue
    return None


def threads() -> int:
    import paddle

    library = _openmp()
    if library is not None:
        return max(1, int(library.omp_get_max_threads()))
    return max(1, int(paddle.get_flags("FLAGS_paddle_num_threads")["FLAGS_paddle_num_threads"]))
