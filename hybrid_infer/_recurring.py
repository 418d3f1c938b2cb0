"""Values that are others in each process, as a time among settings is: each has a static model captured for it.

Nothing but that could tell a program why it is never fast from its first call, so a line in the log does.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from hybrid_infer import _differences
from hybrid_infer._family import Family, Held
from hybrid_infer._log import tell
from hybrid_infer._request import Request

_MODELS = 3  # static models on disk that differ from a call in the same value alone, from which on it is told
_MOST = 64  # of them that are looked at


def told_by(held: Iterable[Held], request: Request) -> tuple[str, int]:
    """The value by which the most static models on disk do not fit a call that they else do, and how many.

    Of each, the first such value counts.
    """
    call, places = request.call, Counter[str]()
    for version in islice((each.version for each in held if each.origin == "disk" and each.version.graph), _MOST):
        if not (version.similar(call, ambient=version.ran is None) and version.fits(call)):
            continue
        subject = request.subject.under(version.ran)
        if subject is None or version.weights != subject.weights:
            continue
        read = subject.attributes.match(version.reads, subject.census)
        if read is not None and read.kind == "value":
            places[_differences.in_code(read)] += 1
    return places.most_common(1)[0] if places else ("", 0)


def warn(request: Request, families: Iterable[Family]) -> None:
    """Log, once for each method and value, that a static model is captured since a value is another one again."""
    what, times = told_by([held for each in families for held in list(each.held)], request)
    if times < _MODELS or (request.name, what) in _TOLD:
        return
    from hybrid_infer._troubleshooting import PAGE

    _TOLD.add((request.name, what))
    text = "%s is captured again: the %s is another one in each of %d static models on disk (see %s#captured-again)"
    tell(logging.WARNING, "captured_again", request.name, text, request.name, what, times, PAGE, reason=what)


_TOLD: set[tuple[str, str]] = set()
