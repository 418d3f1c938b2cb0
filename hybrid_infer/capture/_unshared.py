"""A copy's own copies of what it shares with the object that it was made of.

A class that rebuilds itself in its `__setstate__` may take parts of itself from a cache, as the layers of einops take
their recipes: the copy then holds the very lists and dicts of the original.
"""

from __future__ import annotations

import copy
from typing import Any

from hybrid_infer.state import _census
from hybrid_infer.state._census import Census


def unshare(twins: Census, live: Census, memo: dict[int, Any], frontend: Any) -> bool:
    """Put copies in the place of what both hold; `memo` is that of the first copy. Was there anything?

    Layers that refuse to be copied, and what stands in a tuple, stay shared.
    """
    ours = {id(each): each for each in live.objects.values() if not isinstance(each, frontend.layer_type)}
    if not any(isinstance(each, (dict, list)) and id(each) in ours for each in twins.objects.values()):
        return False
    for path, holder in twins.objects.items():
        if path and id(holder) in ours:
            continue  # of which the copy is to be had, with all that it holds
        is_layer = isinstance(holder, frontend.layer_type)
        for box, name in list(_census.items(holder, is_layer, Census(), frontend)):
            if not isinstance(box, tuple) and id(box[name]) in ours:
                box[name] = copy.deepcopy(box[name], memo)
    return True
