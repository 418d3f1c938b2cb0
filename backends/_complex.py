"""Complex numbers as pairs of real ones, along a last axis of size 2: graphs have them so, ONNX computes in reals.

Between the library and an engine they are NumPy's complex numbers.
"""

from __future__ import annotations

from typing import Any

#: The element types in which graphs have complex numbers.
PARTS = {"complex64": "float32", "complex128": "float64"}


def paired(array: Any) -> Any:
    """An array of complex numbers as one of pairs, without a copy where it lies in one piece.

    >>> import numpy as np
    >>> paired(np.complex64([1 + 2j, 3])).tolist()
    [[1.0, 2.0], [3.0, 0.0]]
    """
    import numpy as np

    flat = np.asarray(array, order="C").reshape(-1)
    return flat.view(PARTS[flat.dtype.name]).reshape(*array.shape, 2)


def joined(pairs: Any) -> Any:
    """The complex numbers of an array of pairs.

    >>> import numpy as np
    >>> joined(np.float32([[1, 2], [3, 0]])).tolist()
    [(1+2j), (3+0j)]
    """
    import numpy as np

    kind = {part: kind for kind, part in PARTS.items()}[pairs.dtype.name]
    return np.asarray(pairs, order="C").reshape(-1).view(kind).reshape(pairs.shape[:-1])
