"""How a call passes its arguments, where a wrapper may look at that: ``f(x)`` and ``f(x, 2)`` are then two calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hybrid_infer._parameters import Parameters

NAME = "the style of the call."


def in_words(style: str) -> str:
    """The style of a call, as "2 by position, scale, bias by name"."""
    count, _, names = style.partition(" ")
    by_position = [f"{count} by position"] if count != "0" or not names else []
    return ", ".join([*by_position, *([f"{names.replace(',', ', ')} by name"] if names else [])])


class Styled(Parameters):
    """The parameters of such a function, and behind them the style of the call: "2 scale,bias"."""

    def __init__(self, own: Parameters) -> None:
        vars(self).update(vars(own))
        self.own = own
        self.names = [*own.names, NAME]
        self.defaults = (*own.defaults, self.missing)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        values = self.own.bind(args, kwargs)
        return None if values is None else (*values, f"{len(args)} {','.join(sorted(kwargs))}")

    def complete(self, values: Sequence[Any], given: Any = None) -> Sequence[Any]:
        if len(values) > len(self.own.names):
            return values
        names = ",".join(sorted(given)) if isinstance(given, dict) else ""
        count = len(values) if given is None else 0 if names else len(given)
        return *values, f"{count} {names}"

    def style(self, values: Sequence[Any]) -> tuple[int, Collection[str]]:
        count, _, names = str(self.complete(values)[len(self.own.names)]).partition(" ")
        return int(count), names.split(",") if names else ()

    def unbind(self, values: Sequence[Any], given: int, names: Collection[str]) -> tuple[list[Any], dict[str, Any]]:
        return self.own.unbind(values[: len(self.own.names)], given, names)
