"""A file that all processes and plans of a store share: what is costly to make, and of use to more than one plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Shelf(Protocol):
    """A file that changes; an update is made while no other process makes one, and may be lost."""

    def read(self) -> bytes: ...

    def update(self, merge: Callable[[bytes], bytes]) -> None: ...
