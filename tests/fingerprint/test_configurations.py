"""Code that libraries of configurations make for classes: the same in each process, and the user's part of it counts.

Beside classes of the same form as attrs makes them, which need no library, those of the libraries that are there.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from fingerprint_support import Case, Cases, check, compared

pytestmark = pytest.mark.processes

CASES = Cases()
case = CASES.add

#: As attrs makes it: it begins with a number that is another one in each process.
HASHED = """
class C:
    def __init__(self, k): self.k = k
    def m(self): return self.k * 2
    LIMIT = 4
start = hash("<attrs generated hash somewhere.C>")
source = f"def __hash__(self): return hash(({start}, self.k, 17))"
scope = {}
exec(compile(source, "<attrs generated methods somewhere.C>", "exec"), scope)
C.__hash__ = scope["__hash__"]
c = C(3)
def f(x): return c.m()
"""
case("hash_of_the_process", HASHED, "LIMIT = 4", "LIMIT = 5", changes=False)
case("hash_of_the_process_edited", HASHED, "17", "18")
case("method_beside_a_hash_of_the_process", HASHED, "* 2", "* 3")

ATTRS = """
import attrs
def positive(value): return abs(value) + 1
@attrs.frozen
class C:
    k: int = attrs.field(converter=positive)
    LIMIT: int = 4
    @property
    def double(self): return self.k * 2
    def unused(self): return 5
c = C(3)
def f(x): return c.double, C(x)
"""
if importlib.util.find_spec("attrs") is not None:
    case("attrs", ATTRS, "return 5", "return 6", changes=False)
    case("attrs_property", ATTRS, "* 2", "* 3")
    case("attrs_converter", ATTRS, "+ 1", "+ 2")
    case("attrs_default", ATTRS, "LIMIT: int = 4", "LIMIT: int = 5")

PYDANTIC = """
import pydantic
from typing import Annotated, Literal, Union
from typing_extensions import TypedDict
def bounded(value): return value + 1
class Options(TypedDict):
    a: int
class Part(pydantic.BaseModel):
    act: str = "gelu"
    kind: Literal["part"] = "part"
class Other(pydantic.BaseModel):
    kind: Literal["other"] = "other"
class C(pydantic.BaseModel):
    k: Annotated[int, pydantic.AfterValidator(bounded)] = 3
    part: Part = Part()
    either: Union[Part, Other] = pydantic.Field(Part(), discriminator="kind")
    parts: list[Part] = []
    options: Options = Options(a=1)
    @pydantic.field_validator("k")
    @classmethod
    def below(cls, value): return value * 11
    @pydantic.computed_field
    @property
    def double(self) -> int: return self.k * 2
    def unused(self): return 5
c = C()
c.k = 4
def f(x): return c.double, C(k=x)
"""
PYDANTIC_FORMS = """
import inspect, pydantic, pydantic.dataclasses
from typing import Generic, Optional, TypeVar
T = TypeVar("T")
@pydantic.dataclasses.dataclass
class D:
    k: int = 3
    @pydantic.field_validator("k")
    @classmethod
    def below(cls, value): return value * 11
class Tree(pydantic.BaseModel):
    k: int = 7
    below: Optional["Tree"] = None
class G(pydantic.BaseModel, Generic[T]):
    k: T
class Held(pydantic.BaseModel):
    trees: dict[str, Tree] = {}
adapter = pydantic.TypeAdapter(list[D])
held, made, one = Held(), G[int](k=2), D()
inspect.signature(Held)
def f(x): return adapter.validate_python(x), held.trees, made.k, one.k, Tree()
"""
if importlib.util.find_spec("pydantic") is not None:
    case("pydantic_dataclass", PYDANTIC_FORMS, "* 11", "* 12")
    case("pydantic_recursion", PYDANTIC_FORMS, "= 7", "= 8")
    case("pydantic_generic", PYDANTIC_FORMS, "G[int]", "G[float]")
    case("pydantic_adapter", PYDANTIC_FORMS, "list[D]", "set[D]")
    case("pydantic_signature", PYDANTIC_FORMS, "\ninspect.signature(Held)\n", "\n", changes=False)
    case("pydantic", PYDANTIC, "return 5", "return 6", changes=False)
    case("pydantic_property", PYDANTIC, "* 2", "* 3")
    case("pydantic_method_that_validates", PYDANTIC, "* 11", "* 12")
    case("pydantic_function_that_validates", PYDANTIC, "+ 1", "+ 2")
    case("pydantic_field", PYDANTIC, "k: Annotated[int", "k: Annotated[float")
    case("pydantic_type_of_a_field", PYDANTIC, "    a: int", "    a: float")
    case("pydantic_default", PYDANTIC, '"gelu"', '"relu"')
    case("pydantic_union", PYDANTIC, "Union[Part, Other]", "Union[Other, Part]")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compared(tmp_path_factory.mktemp("cases"), CASES)


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_edit(each: Case, results: dict[str, Any]) -> None:
    check(each, results)


@pytest.mark.parametrize("library", ["attrs", "pydantic"])
def test_its_cases_are_there(library: str) -> None:
    pytest.importorskip(library, reason=f"the cases of {library} need it")
    assert any(each.name.startswith(library) for each in CASES)
