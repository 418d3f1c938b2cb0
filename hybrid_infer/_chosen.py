"""What stands beside a choice of engine, for ``explain()``: what it depends on, and why engines were left out of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hybrid_infer import _engines, _keys
from hybrid_infer._choice import Choice
from hybrid_infer._family import Held
from hybrid_infer._request import Request

_log = logging.getLogger("hybrid_infer")

_REASONS = "left_out"


def note(request: Request, held: Held, choice: Choice) -> None:
    """Remember what was asked for where a choice was made or found: choices of one size differ in that."""
    key, terms = _key(held, choice), held.ledger.terms
    if key and key not in terms:
        told = _engines.engine_options(request)
        terms[key] = {
            "precision": told.precision, "weights": "live" if told.live else "bound", "threads": told.threads,
            "core_handover": told.handover, "switch_ir_optim": told.optimise,
        }  # fmt: skip


def remember(request: Request, held: Held, choice: Choice) -> None:
    """Keep on disk, beside a choice that is kept there, why engines were left out of it."""
    reasons = {name: why for name, why in held.ledger.unfit.items() if name != choice.name}
    key = _key(held, choice)
    if key and reasons and held.entry is not None and choice.steady:
        request.store.publish_plan(held.entry, _beside(key), {_REASONS: reasons}, {})


def left_out(store: Any, held: Held) -> dict[str, str]:
    """Why engines were left out of the choices that this process has made or found, by engine."""
    found: dict[str, str] = {}
    for key in list(held.choices) if held.entry is not None else ():
        record = store.plan(held.entry, _beside(key))
        reasons = None if record is None else record.meta.get(_REASONS)
        if isinstance(reasons, Mapping):
            found.update((str(name), str(why)) for name, why in reasons.items())
    return found


def distinct(terms: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of the terms of several choices, those in which they differ; of their precision, any but float32 too.

    >>> distinct({"a": {"precision": "float32", "threads": 2}, "b": {"precision": "bfloat16", "threads": 2}})
    {'a': {'precision': 'float32'}, 'b': {'precision': 'bfloat16'}}
    >>> distinct({"a": {"precision": "float32", "threads": 2}}), distinct({"a": {"precision": "float16"}})
    ({'a': {}}, {'a': {'precision': 'float16'}})
    """
    values: dict[str, set[Any]] = {}
    for each in terms.values():
        for name, value in each.items():
            values.setdefault(name, {"float32"} if name == "precision" else set()).add(value)
    return {key: {name: value for name, value in each.items() if len(values[name]) > 1} for key, each in terms.items()}


def _key(held: Held, choice: Choice) -> str:
    """Under which a choice is kept; empty where another thread has replaced it."""
    return next((key for key, each in list(held.choices.items()) if each is choice), "")


def _beside(key: str) -> str:
    return _keys.digest([_REASONS, key])
