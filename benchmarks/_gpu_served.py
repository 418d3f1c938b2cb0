"""Who answered the calls of a decorated layer in this process: an engine, or the eager method in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Of a layer that nobody was asked to serve.
UNSERVED: Mapping[str, Any] = {"seconds": {}, "served_by": [], "fallbacks": []}


def served(call: Any) -> dict[str, Any]:
    """``seconds`` of the steps of what serves it, ``served_by``: the engines, ``fallbacks``: why calls were eager.

    Nothing serves a layer that every engine refused, and ``seconds`` is empty then.
    """
    import hybrid_infer

    versions = [each for method in hybrid_infer.explain(call).to_dict()["methods"] for each in method["versions"]]
    counts = hybrid_infer.stats().values()
    fallbacks = {reason for each in counts for reason in each["fallbacks"]}
    if not fallbacks and any(each["eager_calls"] for each in counts):
        fallbacks = {"calls were eager, and no reason was told"}
    return {
        "seconds": versions[0]["seconds"] if len(versions) == 1 else {},
        "served_by": sorted({engine for each in versions for engine in each["served_by"]}),
        "fallbacks": sorted(fallbacks),
    }
