"""What a value is, for a program: an expression, a number that follows from it, and changes."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A value: ``number`` is an expression of ``v``; ``inside`` are pairs of statements, one there and one back.

    ``others`` are expressions of values that may take its place; ``own`` are definitions that the module needs for it.
    """

    name: str
    make: str
    number: str = "v"
    others: tuple[str, ...] = ()
    inside: tuple[tuple[str, str], ...] = ()
    own: str = ""

    @property
    def definitions(self) -> str:
        return textwrap.dedent(self.own).strip()
