"""What no signature holds, among arguments and results: how the user is told of it, and what helps."""

from __future__ import annotations

from hybrid_infer.objects._instead import instead


class Unsupported(Exception):
    """A value that cannot be part of a signature: ``place`` in the arguments or results, and what it is."""

    remedy = "Pass tensors and plain values"

    def __init__(self, place: str, value: object) -> None:
        super().__init__(place, value)
        self.place, self.kind = place, f"{type(value).__module__}.{type(value).__qualname__}"
        self.remedy = instead(value) or self.remedy

    def __str__(self) -> str:
        return f"{self.place} is of class {self.kind}, which a static graph can neither take nor return"


class Beside(Unsupported):
    """A container that holds more than its items or fields."""

    def __init__(self, place: str, value: object, name: str) -> None:
        super().__init__(place, value)
        self.name = f".{name}" if name.isidentifier() else name

    def __str__(self) -> str:
        held = f"has {self.name} beside what it is made of, which no signature holds"
        return f"{self.place}, of class {self.kind}, {held}"


class OfKind(Unsupported):
    """A tensor that no engine can be given; ``what`` it is, in words."""

    def __init__(self, place: str, value: object, what: str) -> None:
        super().__init__(place, value)
        self.what = what

    def __str__(self) -> str:
        return f"{self.place} is {self.what}, which a static graph can neither take nor return"


class OfLayer(Unsupported):
    """A layer, which has weights that a signature knows nothing of."""

    remedy = "Keep layers as attributes of one layer or object, and pass that first"

    def __str__(self) -> str:
        return f"{self.place} is a layer, of class {self.kind}, which only the first argument of a function can be"


class OfOrder(Unsupported):
    """A set that has another order in another process."""

    remedy = "Pass a sorted tuple"

    def __str__(self) -> str:
        return f"{self.place} is a set whose order, which code may go by, is another one in each process"


class OfValues(Unsupported):
    """A number that the tracer has no value for: those of a tensor decide it."""

    def __str__(self) -> str:
        return f"{self.place} is a number that is taken out of a tensor"
