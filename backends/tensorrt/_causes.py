"""Why a build gave nothing: for what it was given, or for a moment's lack of memory or of the driver's time.

Only the first may be remembered. What TensorRT says in another way than known here counts as the second: to try again
costs time, while to remember wrongly costs the plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CODE = re.compile(r"Error Code:? *(\d+)")
#: TensorRT's codes for invalid arguments, invalid configurations and what it does not support.
_LASTING = frozenset({"3", "4", "10"})
_NO_KERNEL = "could not find any implementation"
_MOMENT = re.compile(r"memory|cuda (runtime|error|failure)|device.{0,20}busy|no space", re.IGNORECASE)


def of_the_moment(text: str) -> bool:
    """Is something that TensorRT says about memory, the driver or the disk?

    >>> of_the_moment("Skipping tactic 0x3 due to insufficient memory on requested size of 9")
    True
    >>> of_the_moment("Error Code 4: Internal Error (Network has dynamic inputs, but no profile.)")
    False
    """
    return _MOMENT.search(text) is not None


def lasting(errors: Sequence[str]) -> bool:
    """Do the errors of a build say that it will fail again?

    >>> lasting(["Error Code 10: Internal Error (Could not find any implementation for node {a}.)"])
    True
    >>> lasting(["Error Code 1: Cuda Runtime (out of memory)", "Error Code 10: Internal Error (Could not find any ..."])
    False
    >>> lasting([])
    False
    """
    if any(map(of_the_moment, errors)):
        return False
    codes = {code for text in errors for code in _CODE.findall(text)}
    return not codes.isdisjoint(_LASTING) or any(_NO_KERNEL in text.lower() for text in errors)
