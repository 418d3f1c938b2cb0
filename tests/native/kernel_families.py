"""All plans whose kernels are tested, by what they have in common."""

from __future__ import annotations

from collections.abc import Callable

from kernel_cases import (
    Case,
    channels_last_cases,
    move_cases,
    operator_cases,
    pattern_cases,
    place_cases,
    product_cases,
    random_cases,
    reduction_cases,
    resize_cases,
    scan_cases,
    spread_cases,
    wide_row_cases,
    window_cases,
)
from recurrent_cases import recurrent_cases
from unet_cases import unet_cases

FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "operators": operator_cases, "random graphs": random_cases, "spread operands": spread_cases,
    "patterns": pattern_cases, "wide rows": wide_row_cases,
    "reductions": reduction_cases, "scans": scan_cases, "places": place_cases, "moves": move_cases,
    "products": product_cases, "windows": window_cases, "channels last": channels_last_cases,
    "groups of channels": unet_cases, "resize": resize_cases, "recurrent": recurrent_cases,
}  # fmt: skip
