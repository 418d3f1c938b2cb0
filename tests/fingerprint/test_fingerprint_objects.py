"""A change of an object, its class or a class of the layer tree changes the fingerprint."""

from __future__ import annotations

from typing import Any

import pytest
from fingerprint_support import LAYER, Case, Cases, check, compared

pytestmark = pytest.mark.processes

CASES = Cases()
case = CASES.add

# Objects.
case("instance", "class C:\n def __init__(s, k): s.k = k\nc = C(2)\ndef f(x): return x * c.k", "C(2)", "C(3)")
case("instance_method", "class C:\n def m(s, x): return x * 2\nc = C()\ndef f(x): return c.m(x)", "x * 2", "x * 3")
case("instance_call", "class C:\n def __call__(s, x): return x * 2\nc = C()\ndef f(x): return c(x)", "x * 2", "x * 3")
case(
    "instance_operator", "class C:\n def __mul__(s, x): return x * 2\nc = C()\ndef f(x): return c * x", "x * 2", "x * 3"
)
# What reads attributes by names that no code mentions, under a name of the program's own.
case("get", "class C: k = 2\ng = getattr\ndef f(x): return x * g(C, 'k')", "k = 2", "k = 3")
case("get_kept", "class C: k = 2\nt = {'g': getattr}\ndef f(x): return x * t['g'](C, 'k')", "k = 2", "k = 3")
case("variables", "class C: k = 2\ng = vars\ndef f(x): return x * g(C)['k']", "k = 2", "k = 3")
case(
    "getter_kind",
    "from operator import attrgetter as a\nclass C: k = 2\ndef f(x): return x * a('k')(C)",
    "k = 2",
    "k = 3",
)
case(
    "caller_kind",
    "from operator import methodcaller as m\nclass C:\n def k(): return 2\ndef f(x): return x * m('k')(C)",
    "return 2",
    "return 3",
)
case(
    "getter_kind_kept",
    "import operator\na = operator.attrgetter\nclass C: k = 2\ndef f(x): return x * a('k')(C)",
    "k = 2",
    "k = 3",
)
case(
    "getter",
    "from operator import attrgetter\ng = attrgetter('k')\nclass C: k = 2\ndef f(x): return g(C)",
    "k = 2",
    "k = 3",
)
case(
    "getter_of_items",
    "from operator import itemgetter\ng = itemgetter('k')\nd = dict(k=2)\ndef f(x): return g(d)",
    "k=2",
    "k=3",
)
# What Python keeps on a class or an object to describe it.
case("document", "class C: pass\nc = C()\nc.__doc__ = '2'\ndef f(x): return float(c.__doc__)", "'2'", "'3'")
case("document_of_class", "class C:\n 'Two.'\ndef f(x): return len(C.__doc__)", "Two", "Three")
case("names_of_slots", "class C:\n __slots__ = ('k',)\ndef f(x): return C.__slots__", "'k',", "'k', 'n'")
case(
    "original_bases",
    "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass G(Generic[T]): pass\nclass C(G[int]): pass\n"
    "c = C()\ndef f(x): return type(c).__orig_bases__",
    "G[int]",
    "G[str]",
)
case(
    "logger",
    "import logging\nlog = logging.getLogger('a')\nlog.k = 2\ndef f(x): return x * log.k",
    "= 2",
    "= 3",
)
case("keys_of_dict", "k = {'a': 1}.keys()\ndef f(x): return list(k)", "'a'", "'b'")
case("values_of_dict", "k = {'a': 2}.values()\ndef f(x): return list(k)", "2", "3")
case("items_of_dict", "k = {'a': 2}.items()\ndef f(x): return list(k)", "2", "3")
case("beside_a_lock", "from threading import Lock\nc = [Lock(), 2]\ndef f(x):\n with c[0]: return c[1]", "2", "3")
case("slots", "class C:\n __slots__ = ('k', 'n')\nc = C()\nc.k = 2\ndef f(x): return x * c.k", "c.k = 2", "c.k = 3")
case(
    "private_slot",
    "class C:\n __slots__ = ('__k',)\n def __init__(s, k): s.__k = k\nc = C(2)\ndef f(x): return c",
    "C(2)",
    "C(3)",
)
case(
    "frozen",
    "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n k: int\nc = C(2)\ndef f(x): return c.k",
    "C(2)",
    "C(3)",
)
case(
    "nested_instance",
    "class C: pass\nc = C()\nc.d = C()\nc.d.up = c\nc.d.k = [2]\ndef f(x): return c.d.k",
    "[2]",
    "[3]",
)
case("list_subclass", "class L(list): pass\nl = L([1, 2])\ndef f(x): return l[0]", "[1, 2]", "[1, 3]")
case("dict_subclass", "class D(dict): pass\nd = D(a=2)\ndef f(x): return d['a']", "a=2", "a=3")
case("int_subclass", "class I(int): pass\ni = I(2)\ndef f(x): return x * i", "I(2)", "I(3)")
case("ordered_dict", "from collections import OrderedDict\nd = OrderedDict(a=2)\ndef f(x): return d['a']", "a=2", "a=3")
case(
    "default_dict",
    "from collections import defaultdict\nd = defaultdict(int, a=2)\ndef f(x): return d['a']",
    "a=2",
    "a=3",
)
case(
    "bound_method", "class C:\n k = 2\n def m(s, x): return x * s.k\nm = C().m\ndef f(x): return m(x)", "k = 2", "k = 3"
)
case("bound_builtin", "l = [1, 2]\ng = l.index\ndef f(x): return g(x)", "[1, 2]", "[2, 1]")
case("constructed", "class C:\n def __init__(s): s.k = 2\ndef f(x): return x * C().k", "s.k = 2", "s.k = 3")
case(
    "metaclass",
    "class M(type):\n def k(c): return 2\nclass C(metaclass=M): pass\ndef f(x): return C.k()",
    "return 2",
    "return 3",
)
case("namespace", "import types\nn = types.SimpleNamespace(k=2)\ndef f(x): return n.k", "k=2", "k=3")
case("weak", "import weakref\nclass C: k = 2\nc = C()\nr = weakref.ref(c)\ndef f(x): return r().k", "k = 2", "k = 3")
case("decimal", "import decimal\nd = decimal.Decimal('2')\ndef f(x): return d", "'2'", "'3'")

# Classes of the layer tree.
for edit, number in {
    "method_in_base": 11,
    "property": 13,
    "class_attribute": 19,
    "class_lambda": 23,
    "static_method": 31,
    "class_method": 37,
    "cached_property": 41,
    "sublayer_helper": 43,
    "sublayer_dunder": 47,
}.items():
    case(f"layer_{edit}", LAYER, f"{number}", f"{number}0")
case("layer_sublayer_forward", LAYER, "return self._inner(x)", "return -self._inner(x)")
case("layer_global", LAYER, "SCALE = 5", "SCALE = 7")
case("layer_new_override", LAYER, "    def unused", "    def shared(self, x): return x\n    def unused")
case(
    "layer_new_base",
    LAYER,
    "class Block(Base)",
    "class Mixin:\n    def __call__(self): return 1\nclass Block(Mixin, Base)",
)
case(
    "layer_computed_name",
    LAYER.replace("return self.block.scale(x)", "return getattr(self.block, 'unu' + x)()"),
    "59",
    "590",
)
case(
    "layer_own_computed_name",
    LAYER.replace("super().shared(x)", "getattr(self, 'sa' + x)()"),
    "return 17",
    "return 170",
)
case(
    "layer_own_computed_names",
    LAYER.replace("super().shared(x)", "[getattr(self, n)() for n in x]"),
    "return 17",
    "return 170",
)
GET = "def g(self, x): return [getattr(self, n) for n in x]"
for how, source in {
    "subclass": f"class C:\n {GET}\nclass D(C):\n def h(self, x): return x * 3\ndef f(x): return D().g(x)",
    "base": f"class D:\n def h(self, x): return x * 3\nclass C(D):\n {GET}\ndef f(x): return C().g(x)",
    "sibling": f"class C:\n {GET}\nclass D:\n def h(self, x): return x * 3\nclass E(C, D): pass\n"
    "def f(x): return E().g(x)",
    "borrower": f"class C:\n {GET}\nclass D:\n g = C.g\n def h(self, x): return x * 3\ndef f(x): return D().g(x)",
    "function": f"{GET}\nclass D:\n def h(self, x): return x * 3\nd = D()\ndef f(x): return g(d, x)",
    "bound": f"import types\nclass C:\n {GET}\nclass D:\n def h(self, x): return x * 3\n"
    "d = D()\nd.m = types.MethodType(C.g, d)\ndef f(x): return d.m(x)",
    "local": f"class D:\n def h(self, x): return x * 3\n"
    f"def make():\n class C(D):\n  {GET}\n return C()\nc = make()\ndef f(x): return c.g(x)",
}.items():
    case(f"own_computed_name_of_a_{how}", source, "* 3", "* 4")
case(
    "layer_constant_name",
    LAYER.replace("return self.block.scale(x)", "return getattr(self.block, 'unused')()"),
    "59",
    "590",
)
case("layer_escaping_self", LAYER.replace("super().shared(x)", "self(x)"), "+ 67", "+ 68")
case("layer_self_in_closure", LAYER.replace("super().shared(x)", "(lambda: self(x))()"), "+ 67", "+ 68")
case("layer_with_no_owner", LAYER.replace("OWNER = Model", ""), "+ 67", "+ 68")
case("layer_forward_named", LAYER.replace("super().shared(x)", "self.forward(x)"), "+ 67", "+ 68")
case(
    "external_layer_class",
    LAYER + "m = Block()\ndef f(x): return m(x)\nFUNCTIONS = [f]\nCLASSES = []\n",
    "+ 43",
    "+ 44",
)
case(
    "external_sublayer_class",
    LAYER + "m = Model()\ndef f(x): return m(x)\nFUNCTIONS = [f]\nCLASSES = []\n",
    "+ 43",
    "+ 44",
)
case(
    "local_classes",
    """
    def make(k):
        class L:
            def forward(self, x): return x * k
        return L
    CLASSES = [make(2), make(5)]
    FUNCTIONS = []
    """,
    "make(2)",
    "make(3)",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compared(tmp_path_factory.mktemp("cases"), CASES)


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_edit(each: Case, results: dict[str, Any]) -> None:
    check(each, results)
