"""What an operator of the interpreter is told about its step, and the table in which operators are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_infer.backends.native._size import Atom


@dataclass(frozen=True)
class Call:
    """Attributes and number of outputs of a step; ``symbols`` are the sizes of this call of the plan."""

    attributes: Mapping[str, Any]
    count: int = 1
    symbols: Mapping[Atom, int] | None = None

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)


#: Takes the call and the operands (None where absent); gives one array, or a sequence of them.
Operator = Callable[..., Any]
Table = dict[str, Operator]


def several(found: Any) -> Sequence[Any]:
    """The results of an operator as a sequence."""
    return found if isinstance(found, (tuple, list)) else (found,)
