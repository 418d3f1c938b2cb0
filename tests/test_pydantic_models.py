"""Models of pydantic that a layer holds: the fields that are read count one by one, and so does all else they keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import counts_of_what_is_read

pydantic = pytest.importorskip("pydantic", minversion="2.0")


class Part(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    act: str = "gelu"
    eps: float = 1.0


class Plain(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    scale: float = 2.0
    out: str = "/here"
    part: Part = Part()
    _own: float = 3.0

    @property
    def double(self) -> float:
        return self.scale * 2


class Open(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(extra="allow")
    scale: float = 2.0


def put(name: str, value: Any) -> Callable[[Any], None]:
    return lambda held: setattr(held, name, value)


def opened() -> Any:
    return Open(more=5.0)


WAYS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], None], int]] = {
    "field": (Plain, lambda held: held.scale, put("scale", 4.0), 2),
    "another field": (Plain, lambda held: held.scale, put("out", "/there"), 1),
    "nested": (Plain, lambda held: held.part.eps, lambda held: setattr(held.part, "eps", 2.0), 2),
    "another nested": (Plain, lambda held: held.part.eps, lambda held: setattr(held.part, "act", "relu"), 1),
    "property": (Plain, lambda held: held.double, put("scale", 4.0), 2),
    "private": (Plain, lambda held: held._own, put("_own", 4.0), 2),
    "extra": (opened, lambda held: held.more, put("more", 6.0), 2),
    "extra, later": (Open, lambda held: getattr(held, "more", 1.0), put("more", 6.0), 2),
    "extra ones": (opened, lambda held: held.model_extra["more"], put("more", 6.0), 2),
    "fields set": (Plain, lambda held: len(held.model_fields_set), put("out", "/here"), 2),
    "dump": (Plain, lambda held: held.model_dump()["part"]["eps"], lambda held: setattr(held.part, "eps", 3.0), 2),
    "dump of what is set": (Plain, lambda held: len(held.model_dump(exclude_unset=True)), put("out", "/here"), 2),
    "dump of extra": (opened, lambda held: held.model_dump()["more"], put("more", 6.0), 2),
    "text": (Plain, lambda held: len(held.model_dump_json()), put("out", "/elsewhere"), 2),
    "shown": (Plain, lambda held: len(repr(held)), put("out", "/elsewhere"), 2),
    "equal": (Plain, lambda held: float(held == Plain()), put("_own", 4.0), 2),
    "iterated": (opened, lambda held: dict(held)["more"], put("more", 6.0), 2),
    "copied": (Plain, lambda held: held.model_copy(update={"out": ""})._own, put("_own", 4.0), 2),
    "validated": (Plain, lambda held: Plain.model_validate(held).scale, put("scale", 4.0), 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_of_a_model_counts(framework: Any, way: str) -> None:
    *case, captures = WAYS[way]
    found = counts_of_what_is_read(framework, *case)
    assert found["captures"] == captures and found["hits"] >= 2, found
