"""ONNX's recurrent operators, as far as they differ from the frameworks': the order of gates, and settings."""

from __future__ import annotations

from typing import Any

#: Where each gate of ONNX's operator is among the frameworks', in ONNX's order.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
#: Kinds of plain layers, and what ONNX calls their functions.
PLAIN = {"RNN_TANH": "Tanh", "RNN_RELU": "Relu"}


def operator(kind: str) -> str:
    """The operator of ONNX for a kind of layer, as the frameworks name both.

    >>> operator("GRU"), operator("RNN_RELU")
    ('GRU', 'RNN')
    """
    return "RNN" if kind in PLAIN else kind


def settings(kind: str, size: int, directions: int) -> dict[str, Any]:
    """The operator's attributes for layers of `size` elements; of a GRU, that its reset gate follows the product.

    >>> settings("RNN_TANH", 8, 2)
    {'hidden_size': 8, 'direction': 'bidirectional', 'activations': ['Tanh', 'Tanh']}
    """
    found: dict[str, Any] = {"hidden_size": size, "direction": "bidirectional" if directions == 2 else "forward"}
    if kind == "GRU":
        found["linear_before_reset"] = 1
    if kind in PLAIN:
        found["activations"] = [PLAIN[kind]] * directions
    return found
