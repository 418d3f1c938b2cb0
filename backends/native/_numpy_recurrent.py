"""LSTM, GRU and RNN, one time step after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._numpy_elementwise import sigmoid
from hybrid_infer.backends.native._numpy_reduce import wide
from hybrid_infer.backends.native._plan import refuse

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "Sigmoid": sigmoid, "Tanh": np.tanh, "Relu": lambda x: np.maximum(x, 0),
}  # fmt: skip


def _activations(call: Call, defaults: list[str], direction: int) -> list[Callable[[Any], Any]]:
    names = call.get("activations") or []
    each = len(defaults)
    chosen = names[direction * each : (direction + 1) * each] or defaults
    if unknown := [name for name in chosen if name not in _ACTIVATIONS]:
        raise refuse(f"has no recurrent activation {unknown[0]}")
    return [_ACTIVATIONS[name] for name in chosen]


#: Takes the input and the states of one time step; gives the new states, the output first.
Cell = Callable[..., tuple[Any, ...]]


def _scan(call: Call, x: Any, lengths: Any, states: list[Any], cells: list[Cell]) -> list[Any]:
    """Run one cell per direction over `x` (time, batch, input); `states` are (directions, batch, hidden)."""
    if call.get("clip") is not None:
        raise refuse("has no clipping of recurrent cells")
    if call.get("layout"):
        x, states = np.swapaxes(x, 0, 1), [np.swapaxes(state, 0, 1) for state in states]
    time, batch = x.shape[:2]
    steps = np.full(batch, time) if lengths is None else lengths
    output = np.zeros((time, len(cells), batch, states[0].shape[2]), x.dtype)
    last: list[list[Any]] = []
    for d, cell in enumerate(cells):
        now = [state[d] for state in states]
        backwards = call.get("direction") == "reverse" or d == 1
        for t in range(time):
            # Backwards, a shorter sequence begins at its own end.
            place = np.where(t < steps, steps - 1 - t, t) if backwards else np.full(batch, t)
            row = np.arange(batch)
            active = (t < steps)[:, None]
            new = cell(x[place, row], *now)
            now = [np.where(active, a, b) for a, b in zip(new, now, strict=True)]
            output[place, d, row] = np.where(active, new[0], 0)
        last.append(now)
    finals = [np.stack([each[i] for each in last]) for i in range(len(states))]
    if call.get("layout"):
        output, finals = output.transpose(2, 0, 1, 3), [np.swapaxes(final, 0, 1) for final in finals]
    return [output, *finals][: call.count]


def _start(call: Call, given: Any, x: Any, directions: int, hidden: int) -> Any:
    batch = x.shape[0] if call.get("layout") else x.shape[1]
    shape = (batch, directions, hidden) if call.get("layout") else (directions, batch, hidden)
    return np.zeros(shape, x.dtype) if given is None else given


def _given(now: Any, w: Any, d: int) -> Any:
    """What the weights of a direction make of the input of one time; without weights it is that already."""
    return now[:, d] if w is None else now @ w[d].T


def _lstm(call: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None,
          p: Any = None) -> Any:  # fmt: skip
    hidden, directions = r.shape[2], r.shape[0]
    if call.get("input_forget"):
        raise refuse("has no LSTM with coupled gates")
    bias = np.zeros((directions, 8 * hidden), x.dtype) if b is None else b
    peep = np.zeros((directions, 3 * hidden), x.dtype) if p is None else p

    def cell_of(d: int) -> Cell:
        f, g, e = _activations(call, ["Sigmoid", "Tanh", "Tanh"], d)
        pi, po, pf = np.split(peep[d], 3)

        def cell(now: Any, h: Any, c: Any) -> tuple[Any, ...]:
            gates = _given(now, w, d) + h @ r[d].T + bias[d, : 4 * hidden] + bias[d, 4 * hidden :]
            i, o, forget, candidate = np.split(gates, 4, axis=-1)
            c2 = f(forget + pf * c) * c + f(i + pi * c) * g(candidate)
            return f(o + po * c2) * e(c2), c2

        return cell

    states = [_start(call, state, x, directions, hidden) for state in (h, c)]
    return _scan(call, x, lengths, states, [cell_of(d) for d in range(directions)])


def _gru(call: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    hidden, directions = r.shape[2], r.shape[0]
    bias = np.zeros((directions, 6 * hidden), x.dtype) if b is None else b

    def cell_of(d: int) -> Cell:
        f, g = _activations(call, ["Sigmoid", "Tanh"], d)
        rz, rr, rh = np.split(r[d], 3)
        bz, br, bh, cz, cr, ch = np.split(bias[d], 6)

        def cell(now: Any, h: Any) -> tuple[Any, ...]:
            xz, xr, xh = np.split(_given(now, w, d), 3, axis=-1)
            z = f(xz + h @ rz.T + bz + cz)
            reset = f(xr + h @ rr.T + br + cr)
            if call.get("linear_before_reset"):
                new = g(xh + reset * (h @ rh.T + ch) + bh)
            else:
                new = g(xh + (reset * h) @ rh.T + ch + bh)
            return ((1 - z) * new + z * h,)

        return cell

    states = [_start(call, h, x, directions, hidden)]
    return _scan(call, x, lengths, states, [cell_of(d) for d in range(directions)])


def _rnn(call: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    hidden, directions = r.shape[2], r.shape[0]
    bias = np.zeros((directions, 2 * hidden), x.dtype) if b is None else b

    def cell_of(d: int) -> Cell:
        (f,) = _activations(call, ["Tanh"], d)
        return lambda now, h: (f(_given(now, w, d) + h @ r[d].T + bias[d, :hidden] + bias[d, hidden:]),)

    states = [_start(call, h, x, directions, hidden)]
    return _scan(call, x, lengths, states, [cell_of(d) for d in range(directions)])


def _recurrence(call: Call, x: Any, r: Any, *more: Any) -> Any:
    """Ours: what comes behind the product with the input (see `_spell_recurrent`)."""
    given = dict(zip(call.get("there"), more, strict=True))
    name, activation = call.get("cell"), call.get("activation")
    told: dict[str, Any] = {"direction": call.get("direction"), "linear_before_reset": 1}
    if name == "RNN":
        told["activations"] = [activation] * 2
    parts = [None if given.get(part) is None else wide(given[part]) for part in ("b", "h", "c")]
    states = parts[1:] if name == "LSTM" else parts[1:2]
    inner = Call(told, call.count)
    found = _PLAIN[name](inner, wide(x), None, wide(np.swapaxes(r, 1, 2)), parts[0], given.get("lengths"), *states)
    return [each.astype(x.dtype) for each in found]


_PLAIN: Table = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
TABLE: Table = {**_PLAIN, "recurrence": _recurrence}
