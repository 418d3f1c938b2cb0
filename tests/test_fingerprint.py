"""What changes the fingerprint of a method and what does not, each across two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hybrid_infer
from hybrid_infer._fingerprint import Fingerprint, fingerprint

pytestmark = pytest.mark.processes

FAKE = """
class Tensor: pass
class Layer: pass
"""

#: Imports every case in one process and prints what the fingerprint of each says.
RUNNER = """
import importlib, json, sys
import fake
from hybrid_infer._fingerprint import fingerprint
found = {}
for name in sys.argv[1].split():
    module = importlib.import_module(f"case_{name}.main")
    result = fingerprint(
        module.FUNCTIONS if hasattr(module, "FUNCTIONS") else [module.f],
        getattr(module, "CLASSES", ()),
        is_tensor=lambda value: isinstance(value, fake.Tensor),
        is_layer=lambda value: isinstance(value, fake.Layer),
        owner=getattr(module, "OWNER", None),
    )
    found[name] = {
        "digest": result.digest,
        "ingredients": dict(result.ingredients),
        "opaque": list(result.opaque),
        "externals": [[e.kind, e.holder, e.name, type(e.object).__name__] for e in result.externals],
    }
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Case:
    """A package of modules and one edit to them."""

    name: str
    files: Mapping[str, str]
    old: str
    new: str
    changes: bool


CASES: list[Case] = []


def case(name: str, source: str, old: str, new: str, changes: bool = True, **others: str) -> None:
    files = {"main.py": source, **{f"{module}.py": text for module, text in others.items()}}
    files = {path: textwrap.dedent(text) for path, text in files.items()}
    assert sum(text.count(old) for text in files.values()) == 1, (name, old)
    CASES.append(Case(name, files, old, new, changes))


# The method and what it calls.
case("method", "def f(x): return x + 1", "x + 1", "x + 2")
case("operator", "def f(x): return x + 1", "x + 1", "x - 1")
case("constant_type", "def f(x): return x + 1", "x + 1", "x + 1.0")
case("constant_sign", "def f(x): return x + 0.0", "x + 0.0", "x + -0.0")
case("helper", "def g(x): return x * 2\ndef f(x): return g(x)", "x * 2", "x * 3")
case("other_helper", "def g(x): return x\ndef h(x): return -x\ndef f(x): return g(x)", "return g(x)", "return h(x)")
case(
    "helper_of_helper",
    "from .a import g\ndef f(x): return g(x)",
    "x * 2",
    "x * 3",
    a="from .b import h\ndef g(x): return h(x)",
    b="def h(x): return x * 2",
)
case("module_attribute", "from . import a\ndef f(x): return a.g(x)", "x * 2", "x * 3", a="def g(x): return x * 2")
case("module_constant", "from . import a\ndef f(x): return x * a.SCALE", "= 2", "= 3", a="SCALE = 2")
case(
    "module_passed_on",
    "from . import a\ndef g(m, x): return m.h(x)\ndef f(x): return g(a, x)",
    "x * 2",
    "x * 3",
    a="def h(x): return x * 2",
)
case(
    "module_of_module",
    "from . import a\ndef f(x): return a.b.g(x)",
    "x * 2",
    "x * 3",
    a="from . import b",
    b="def g(x): return x * 2",
)
case("import_inside", "def f(x):\n from .a import g\n return g(x)", "x * 2", "x * 3", a="def g(x): return x * 2")
case(
    "import_inside_absolute",
    "def f(x):\n import case_import_inside_absolute.a as a\n return a.g(x)",
    "x * 2",
    "x * 3",
    a="def g(x): return x * 2",
)
case("recursion", "def g(x): return f(x) * 2\ndef f(x): return g(x) if x else 0", "* 2", "* 3")
case("nested_function", "def f(x):\n def g(y): return y * 2\n return g(x)", "y * 2", "y * 3")
case("comprehension", "def f(x): return [y * 2 for y in x]", "y * 2", "y * 3")
case("nested_class", "def f(x):\n class A:\n  def g(self, y): return y * 2\n return A().g(x)", "y * 2", "y * 3")
case("lambda_global", "g = lambda x: x * 2\ndef f(x): return g(x)", "x * 2", "x * 3")
case("lambda_in_list", "GS = [lambda x: x, lambda x: x * 2]\ndef f(x): return GS[1](x)", "x * 2", "x * 3")
case("lambda_in_dict", "GS = {'a': [lambda x: x * 2]}\ndef f(x): return GS['a'][0](x)", "x * 2", "x * 3")
case("exception_handler", "def f(x):\n try: return x\n except ValueError: return 1", "ValueError", "TypeError")
case("keyword_name", "def g(**k): return k\ndef f(x): return g(a=x)", "g(a=x)", "g(b=x)")
case("generator", "def g(x):\n yield x * 2\ndef f(x): return list(g(x))", "x * 2", "x * 3")

# Values.
case("closure", "def make(k):\n def f(x): return x * k\n return f\nf = make(2)", "make(2)", "make(3)")
case(
    "closure_function",
    "def g(x): return x * 2\ndef make(h):\n def f(x): return h(x)\n return f\nf = make(g)",
    "x * 2",
    "x * 3",
)
case("constant", "SCALE = 2\ndef f(x): return x * SCALE", "= 2", "= 3")
case("constant_bool", "FLAG = 1\ndef f(x): return x if FLAG else -x", "= 1", "= True")
case("constant_nested", "TABLE = {'a': [1, (2, 3)]}\ndef f(x): return TABLE['a'][1][0] * x", "(2, 3)", "(2, 4)")
case("constant_array", "import numpy as np\nT = np.array([1.0, 2.0])\ndef f(x): return x * T[0]", "2.0]", "2.5]")
case("constant_dtype", "import numpy as np\nT = np.dtype('f4')\ndef f(x): return x.astype(T)", "f4", "f8")
case("default", "def f(x, k=2): return x * k", "k=2", "k=3")
case("keyword_default", "def f(x, *, k=2): return x * k", "k=2", "k=3")
case("default_function", "def f(x, k=lambda x: x * 2): return k(x)", "x * 2", "x * 3")
case("helper_default", "def g(x, k=2): return x * k\ndef f(x): return g(x)", "k=2", "k=3")
case("partial", "import functools\ndef g(x, k): return x\nf = functools.partial(g, k=2)", "k=2", "k=3")
case("partial_function", "import functools\ndef g(x, k): return x * 2\nf = functools.partial(g, k=2)", "x * 2", "x * 3")
case(
    "partial_global",
    "import functools\ndef g(x, k): return x\nh = functools.partial(g, 2)\ndef f(x): return h(x)",
    "g, 2",
    "g, 3",
)
case(
    "decorated",
    """
    import functools
    def deco(g):
        @functools.wraps(g)
        def inner(*a): return g(*a)
        return inner
    @deco
    def f(x): return x * 2
    """,
    "x * 2",
    "x * 3",
)
case(
    "decorator",
    """
    import functools
    def deco(g):
        @functools.wraps(g)
        def inner(*a): return g(*a) * 2
        return inner
    @deco
    def f(x): return x
    """,
    "* 2",
    "* 3",
)
case(
    "lru_cache",
    "import functools\n@functools.lru_cache\ndef g(x): return 2\ndef f(x): return g(x)",
    "return 2",
    "return 3",
)
case(
    "context_decorator",
    """
    import contextlib
    @contextlib.contextmanager
    def scope():
        yield 2
    def f(x):
        with scope() as k: return x * k
    """,
    "yield 2",
    "yield 3",
)
case(
    "singledispatch",
    """
    import functools
    @functools.singledispatch
    def g(x): return x
    @g.register
    def _(x: int): return x * 2
    def f(x): return g(x)
    """,
    "x * 2",
    "x * 3",
)
case("function_attribute", "def g(x): return x * g.scale\ng.scale = 2\ndef f(x): return g(x)", "= 2", "= 3")
case("set_of_functions", "def a(x): return x\ndef b(x): return x * 2\nS = {a, b}\ndef f(x): return S", "x * 2", "x * 3")
case("enum_value", "import enum\nclass E(enum.Enum):\n A = 1\ndef f(x): return x * E.A.value", "A = 1", "A = 2")
case("enum_iterated", "import enum\nclass E(enum.Enum):\n A = 1\ndef f(x): return len(E)", "A = 1", "A = 1; B = 2")
case(
    "named_tuple",
    "from collections import namedtuple\nP = namedtuple('P', 'a b')\nT = P(1, 2)\ndef f(x): return T.a",
    "1, 2",
    "1, 3",
)
case("global_regex", "import re\nR = re.compile('a+')\ndef f(x): return R.match(x)", "a+", "b+")
case("math_constant", "import math\nA = math.pi\ndef f(x): return x * A", "math.pi", "math.e")
case("builtin", "g = len\ndef f(x): return g(x)", "g = len", "g = sum")
case("eval", "def g(x): return x * 2\ndef f(x): return eval('g(x)')", "x * 2", "x * 3")
case("globals_call", "def g(x): return x * 2\ndef f(x): return globals()['g'](x)", "x * 2", "x * 3")

case(
    "method_caller",
    "import operator\nM = operator.methodcaller('m')\nclass C:\n def m(s): return 2\nc = C()\ndef f(x): return M(c)",
    "return 2",
    "return 3",
)
case(
    "attribute_getter",
    "import operator\nclass C:\n k = 2\nc = C()\ndef f(x): return operator.attrgetter('k')(c)",
    "k = 2",
    "k = 3",
)
case(
    "module_accessor", "from . import a\ndef f(x): return a.g", "return 2", "return 3", a="def __getattr__(n): return 2"
)
case(
    "module_computed",
    "from . import a\ndef f(x): return getattr(a, 'g' + x)()",
    "return 2",
    "return 3",
    a="def g(): return 2",
)
case(
    "module_computed_through_variable",
    "from . import a\ndef f(x):\n m = a\n return getattr(m, 'g' + x)()",
    "return 2",
    "return 3",
    a="def g(): return 2",
)
case(
    "module_in_a_list",
    "from . import a\nMS = [a]\ndef f(x): return getattr(MS[0], 'g' + x)()",
    "return 2",
    "return 3",
    a="def g(): return 2",
)
case(
    "match",
    """
    class P:
        __match_args__ = ('a', 'b')
        a, b = 1, 2
    p = P()
    def f(x):
        match p:
            case P(k): return k
    """,
    "('a', 'b')",
    "('b', 'a')",
)
case(
    "match_property",
    "class P:\n @property\n def a(s): return 2\np = P()\ndef f(x):\n match p:\n  case P(a=k): return k",
    "return 2",
    "return 3",
)
case("printf", "class P:\n def __str__(s): return '2'\np = P()\ndef f(x): return '%s' % p", "'2'", "'3'")
case("format", "class P:\n def __str__(s): return '2'\np = P()\ndef f(x): return f'{p}'", "'2'", "'3'")
case(
    "own_deepcopy",
    "import copy\nclass P:\n def __deepcopy__(s, m): return 2\np = P()\ndef f(x): return copy.deepcopy(p)",
    "return 2",
    "return 3",
)
case(
    "autoload_in_set",
    "S = set()\ndef a(x): return len(S)\ndef b(x): return len(S) + 2\nS |= {a, b}\ndef f(x): return S",
    "+ 2",
    "+ 3",
)
case(
    "default_dict_subclass",
    "from collections import defaultdict\nclass D(defaultdict): pass\nd = D(int)\ndef f(x): return d[0]",
    "D(int)",
    "D(float)",
)
case(
    "array_subclass",
    "import numpy as np\nclass A(np.ndarray): pass\na = np.array([1, 2]).view(A)\ndef f(x): return a",
    "[1, 2]",
    "[1, 3]",
)
case(
    "date_subclass",
    "import datetime\nclass D(datetime.date): pass\nd = D(2020, 1, 2)\ndef f(x): return d",
    "1, 2)",
    "1, 3)",
)
case("vectorised", "import numpy as np\n@np.vectorize\ndef g(x): return x * 2\ndef f(x): return g(x)", "x * 2", "x * 3")

# Objects.
case("instance", "class C:\n def __init__(s, k): s.k = k\nc = C(2)\ndef f(x): return x * c.k", "C(2)", "C(3)")
case("instance_method", "class C:\n def m(s, x): return x * 2\nc = C()\ndef f(x): return c.m(x)", "x * 2", "x * 3")
case("instance_call", "class C:\n def __call__(s, x): return x * 2\nc = C()\ndef f(x): return c(x)", "x * 2", "x * 3")
case(
    "instance_operator", "class C:\n def __mul__(s, x): return x * 2\nc = C()\ndef f(x): return c * x", "x * 2", "x * 3"
)
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
LAYER = """
import functools
import fake
SCALE = 5
class Base(fake.Layer):
    kind = "base"
    def shared(self, x): return x + 11
    @property
    def width(self): return 13
    def save(self, path): return 17
class Block(Base):
    '''A block.'''
    depth = 19
    hooks = [lambda x: x + 23]
    def __init__(self):
        super().__init__()
        self.size = 29
    @staticmethod
    def scale(x): return x * 31
    @classmethod
    def make(cls): return 37
    @functools.cached_property
    def table(self): return 41
    def _inner(self, x): return x + 43
    def forward(self, x): return self._inner(x)
    def __getitem__(self, i): return 47
    def __repr__(self): return "53"
    def unused(self): return 59
class Model(Base):
    def __init__(self):
        self.block = Block()
        self.after = 61
    def blocks(self, x):
        x = super().shared(x) * self.width * SCALE
        x = self.block(x) + self.block.depth + self.block.hooks[0](x) + self.block[0]
        return self.block.scale(x) * self.block.make() * self.block.table
    def forward(self, x): return self.blocks(x) + 67
FUNCTIONS = [Model.blocks]
CLASSES = [Model, Block]
OWNER = Model
"""
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

# What does not count.
SAME: Any = dict(changes=False)
case("comment", "def f(x):\n    return x + 1", "\n    return", "\n    # why\n\n    return", **SAME)
case("docstring", "def f(x):\n    'Old.'\n    return x + 1", "Old.", "New, longer.", **SAME)
case("docstring_added", "def f(x):\n    return x + 1.5", "    return", "    'Doc.'\n    return", **SAME)
case("docstring_removed", "def f(x):\n    'Doc.'\n    return (x, 'b', None)", "    'Doc.'\n", "", **SAME)
case(
    "docstring_used",
    "def g(x, y): return x\ndef f(x):\n    'relu'\n    return g(x, 'relu')",
    "    'relu'\n",
    "    'gelu'\n",
    **SAME,
)
case(
    "literal_like_docstring",
    "def g(x, y): return x\ndef f(x):\n    'relu'\n    return g(x, 'relu')",
    "g(x, 'relu')",
    "g(x, 'gelu')",
)
case(
    "docstring_nested",
    "def f(x):\n    def g(y):\n        'Old.'\n        return y\n    return g(x)",
    "Old.",
    "New.",
    **SAME,
)
case(
    "docstring_local_class",
    "def f(x):\n    class A:\n        'Old.'\n        k = 2\n    return A.k",
    "Old.",
    "New.",
    **SAME,
)
case("docstring_module", "'Old.'\ndef f(x): return x", "Old.", "New.", **SAME)
case("docstring_helper", "def g(x):\n    'Old.'\n    return x\ndef f(x): return g(x)", "Old.", "New.", **SAME)
case(
    "docstring_cached",
    """
    import functools
    class C:
        @functools.cached_property
        def a(self):
            'Old.'
            return 1
    c = C()
    def f(x): return c.a
    """,
    "Old.",
    "New.",
    **SAME,
)
case("position", "X = 1\ndef f(x):\n    return x + 1", "X = 1\n", "X = 1\n" + "\n" * 300, **SAME)
case("position_lambda", "GS = [\n lambda x: x,\n]\ndef f(x): return GS[0](x)", "GS = [\n", "GS = [\n\n\n", **SAME)
case("position_local_class", "def f(x):\n    class A:\n        k = 2\n    return A.k", "def f", "\n\n\ndef f", **SAME)
case("annotation", "def f(x: int): return x", "int", "float", **SAME)
case("unrelated_function", "def g(x): return x * 2\ndef f(x): return x", "x * 2", "x * 3", **SAME)
case("unrelated_constant", "A = 2\nB = 3\ndef f(x): return x * A", "B = 3", "B = 4", **SAME)
case("unrelated_class", "class C:\n k = 2\ndef f(x): return x", "k = 2", "k = 3", **SAME)
case("unrelated_import", "import math\ndef f(x): return x", "import math", "import json, math", **SAME)
case(
    "unrelated_in_helper_module",
    "from . import a\ndef f(x): return a.g(x)",
    "x * 3",
    "x * 4",
    **SAME,
    a="def g(x): return x * 2\ndef h(x): return x * 3",
)
case(
    "unrelated_module",
    "from . import a\nfrom . import b\ndef f(x): return a.g(x)",
    "x * 3",
    "x * 4",
    **SAME,
    a="def g(x): return x * 2",
    b="def h(x): return x * 3",
)
case("name_of_attribute", "def norm(x): return x * 2\ndef f(x): return x.norm()", "x * 2", "x * 3", **SAME)
case(
    "computed_on_library",
    "import math\nfrom . import a\ndef f(x): return getattr(math, x)(a.g())",
    "* 3",
    "* 4",
    **SAME,
    a="def g(): return 2\ndef h(x): return x * 3",
)
case(
    "computed_on_other_module",
    "from . import a, b\ndef f(x): return getattr(a, x)(b.g())",
    "* 3",
    "* 4",
    **SAME,
    a="K = 1",
    b="def g(): return 2\ndef h(x): return x * 3",
)
case(
    "environment",
    "from os import environ\ndef f(x): return environ.get('A')",
    "from os",
    "import os; os.environ['B'] = '1'\nfrom os",
    **SAME,
)
case(
    "logger",
    """
    import logging
    log = logging.getLogger('a')
    log.addHandler(logging.StreamHandler())
    def f(x):
        log.info('a')
        return x
    """,
    "import logging",
    "import logging; logging.basicConfig()",
    **SAME,
)
for edit, number in {
    "save": 17,
    "constructor": 29,
    "repr": 53,
    "unused_method": 59,
    "outer_init": 61,
    "outer_forward": 67,
}.items():
    case(f"layer_unrelated_{edit}", LAYER, f"{number}", f"{number}0", **SAME)
case("layer_unrelated_attribute", LAYER, '"base"', '"other"', **SAME)
case("layer_docstring", LAYER, "A block.", "One block.", **SAME)
case("layer_comment", LAYER, "    def unused", "    # why\n    def unused", **SAME)
case("layer_new_method", LAYER, "    def unused", "    def export(self): return 1\n    def unused", **SAME)
case(
    "name_accessor",
    """
    class W:
        def __getattr__(self, name): return getattr(self.__class__, name)
        def save(self): return 2
    w = W()
    def f(x): return w
    """,
    "return 2",
    "return 3",
    **SAME,
)


def write(folder: Path, edited: bool) -> Path:
    folder.mkdir()
    (folder / "fake.py").write_text(FAKE)
    for each in CASES:
        package = folder / f"case_{each.name}"
        package.mkdir()
        (package / "__init__.py").write_text("")
        for path, text in each.files.items():
            (package / path).write_text(text.replace(each.old, each.new) if edited else text)
    return folder


def run(folder: Path, names: list[str], seed: str = "0", runner: str = RUNNER, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", runner, " ".join(names)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(hybrid_infer.__file__).parents[1]),
            "PYTHONHASHSEED": seed,
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("cases")
    names = [each.name for each in CASES]
    before, after, elsewhere = write(root / "a", False), write(root / "b", True), write(root / "moved", False)
    return {
        "before": run(before, names),
        "after": run(after, names),
        # Another process, another hash seed, another folder, and the cases in the opposite order.
        "again": run(elsewhere, names[::-1], seed="4711"),
    }


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_edit(each: Case, results: dict[str, Any]) -> None:
    before, after, again = (results[when][each.name] for when in ("before", "after", "again"))
    assert before["opaque"] == after["opaque"] == []
    assert before["digest"] == again["digest"], differing(before, again)
    assert (before["digest"] != after["digest"]) == each.changes, differing(before, after)
    assert (before["ingredients"] != after["ingredients"]) == each.changes


def differing(a: Any, b: Any) -> list[str]:
    a, b = a["ingredients"], b["ingredients"]
    return [label for label in {**a, **b} if a.get(label) != b.get(label)]


# What has no fingerprint.

OPAQUE = {
    "file": ("HANDLE = open(__file__)\ndef f(x): return HANDLE.read()", "global HANDLE", "TextIOWrapper"),
    "lock": ("import threading\nLOCK = threading.Lock()\ndef f(x):\n with LOCK: return x", "global LOCK", "lock"),
    "socket": ("import socket\nS = socket.socket()\ndef f(x): return S", "global S", "socket"),
    "generator": ("G = (i for i in range(3))\ndef f(x): return next(G)", "global G", "generator"),
    "thread_local": ("import threading\nT = threading.local()\ndef f(x): return T.x", "global T", "_thread._local"),
    "nested": ("S = {'a': [1, open(__file__)]}\ndef f(x): return S", "`S['a'][1]`", "TextIOWrapper"),
    "attribute": ("class C: pass\nc = C()\nc.h = open(__file__)\ndef f(x): return c.h", "`c.h`", "TextIOWrapper"),
    "closure": ("def make(h):\n def f(x): return h\n return f\nf = make(open(__file__))", "closure `h`", "TextIO"),
    "default": ("def f(x, h=open(__file__)): return h", "default `h`", "TextIOWrapper"),
    "class_attribute": (
        "class C:\n h = open(__file__)\nCLASSES = [C]\ndef f(self, x): return self.h",
        "attribute `h`",
        "TextIOWrapper",
    ),
    "computed_import": ("import importlib\ndef f(x): return importlib.import_module(x)", "function", "computed names"),
    "refusing": (
        "import ctypes\nP = ctypes.pointer(ctypes.c_int(1))\ndef f(x): return P",
        "global P",
        "cannot be read",
    ),
    "second_of_two": ("A = [open(__file__)]\nB = [open(__file__)]\ndef f(x): return A, B", "global `B[0]`", "TextIO"),
}  # fmt: skip


@pytest.fixture(scope="module")
def opaque(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_sources(tmp_path_factory.mktemp("opaque"), {name: row[0] for name, row in OPAQUE.items()})


def run_sources(folder: Path, sources: Mapping[str, str], **environment: str) -> Any:
    (folder / "fake.py").write_text(FAKE)
    for name, source in sources.items():
        (folder / f"case_{name}").mkdir()
        (folder / f"case_{name}" / "main.py").write_text(textwrap.dedent(source))
    return run(folder, list(sources), **environment)


@pytest.mark.parametrize("name", OPAQUE)
def test_what_has_no_fingerprint_is_named(name: str, opaque: Any) -> None:
    _, where, why = OPAQUE[name]
    where = where if "`" in where or where == "function" else f"{where.split()[0]} `{where.split()[1]}`"
    assert any(where in line and why in line for line in opaque[name]["opaque"]), opaque[name]["opaque"]


EXTERNALS = {
    "closure": (
        "def make(w):\n def f(x): return x @ w\n return f\nf = make(fake.Tensor())",
        ["closure", "w", "Tensor"],
    ),
    "global": ("W = fake.Tensor()\ndef f(x): return x @ W", ["global", "W", "Tensor"]),
    "nested": ("W = {'a': [fake.Tensor()]}\ndef f(x): return x @ W['a'][0]", ["global", "W['a'][0]", "Tensor"]),
    "default": ("def f(x, w=fake.Tensor()): return x @ w", ["default", "w", "Tensor"]),
    "of_instance": ("class C: pass\nc = C()\nc.w = fake.Tensor()\ndef f(x): return c.w", ["global", "c.w", "Tensor"]),
    "layer": ("m = fake.Layer()\ndef f(x): return m(x)", ["global", "m", "Layer"]),
    "array": ("import numpy as np\nT = np.ones(3)\ndef f(x): return x * T", ["global", "T", "ndarray"]),
    "class": ("class C:\n w = fake.Tensor()\nCLASSES = [C]\ndef f(s, x): return s.w", ["attribute", "w", "Tensor"]),
    "helper": ("W = fake.Tensor()\ndef g(x): return x @ W\ndef f(x): return g(x)", ["global", "W", "Tensor"]),
    "bound": ("class C(fake.Layer):\n def m(s, x): return x\nf = C().m", ["argument", "function", "C"]),
}


@pytest.fixture(scope="module")
def externals(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_sources(
        tmp_path_factory.mktemp("externals"), {name: "import fake\n" + row[0] for name, row in EXTERNALS.items()}
    )


@pytest.mark.parametrize("name", EXTERNALS)
def test_tensors_and_layers_outside_are_reported(name: str, externals: Any) -> None:
    found = [[kind, path, type_name] for kind, _, path, type_name in externals[name]["externals"]]
    assert found == [EXTERNALS[name][1]]
    assert externals[name]["opaque"] == []


# Installed code.

LIBRARY = "def g(x): return x * 2\ndef deco(h):\n def inner(x): return h(x)\n return inner\nclass C:\n k = 2\n"
USES_LIBRARY = """
import lib, lib.part
from lib import g, C, deco
K = C()
@deco
def own(x): return x * 5
def f(x): return lib.g(x) + g(x) + lib.part.h(x) + K.k + own(x)
"""


def install(root: Path, version: str, source: str, direct_url: str = "", own: str = "x * 5") -> Any:
    site = root / "site-packages"
    (site / "lib").mkdir(parents=True)
    (site / "lib" / "__init__.py").write_text(source)
    (site / "lib" / "part.py").write_text("def h(x): return x * 2")
    info = site / f"lib-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: lib\nVersion: {version}\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)
    path = os.pathsep.join([str(Path(hybrid_infer.__file__).parents[1]), str(site)])
    return run_sources(root, {"uses": USES_LIBRARY.replace("x * 5", own)}, PYTHONPATH=path)["uses"]


def test_libraries_count_by_version(tmp_path: Path) -> None:
    base = install(tmp_path / "a", "1.0", LIBRARY)
    assert base["ingredients"]["library lib"] == "lib 1.0" and base["opaque"] == []
    assert install(tmp_path / "b", "1.0", LIBRARY.replace("* 2", "* 3"))["digest"] == base["digest"]
    newer = install(tmp_path / "c", "1.1", LIBRARY)
    assert differing(base, newer) == ["library lib"] and base["digest"] != newer["digest"]


def test_a_library_s_wrapper_does_not_hide_the_user_s_function(tmp_path: Path) -> None:
    base = install(tmp_path / "a", "1.0", LIBRARY)
    assert base["digest"] != install(tmp_path / "b", "1.0", LIBRARY, own="x * 6")["digest"]


@pytest.mark.parametrize(
    ("direct_url", "by_content"),
    [
        ('{"url": "file:///home/lib", "dir_info": {}}', True),
        ('{"url": "https://host/lib", "vcs_info": {"vcs": "git", "commit_id": "aaa"}}', False),
    ],
)
def test_installs_from_a_directory_count_by_content(tmp_path: Path, direct_url: str, by_content: bool) -> None:
    base = install(tmp_path / "a", "1.0", LIBRARY, direct_url)
    edited = install(tmp_path / "b", "1.0", LIBRARY.replace("* 2", "* 3"), direct_url)
    assert (base["digest"] != edited["digest"]) == by_content
    other = install(tmp_path / "c", "1.0", LIBRARY, direct_url.replace("aaa", "bbb"))
    assert (base["digest"] != other["digest"]) == (not by_content)


def test_an_editable_install_counts_by_content(tmp_path: Path) -> None:
    digests = []
    for name, source in (("a", LIBRARY), ("b", LIBRARY.replace("* 2", "* 3")), ("c", LIBRARY + "\n# more\n")):
        root = tmp_path / name
        (root / "source" / "lib").mkdir(parents=True)
        (root / "source" / "lib" / "__init__.py").write_text(source)
        (root / "source" / "lib" / "part.py").write_text("def h(x): return x * 2")
        info = root / "site-packages" / "lib-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Name: lib\nVersion: 1.0\n")
        folders = [Path(hybrid_infer.__file__).parents[1], root / "site-packages", root / "source"]
        found = run_sources(root, {"uses": USES_LIBRARY}, PYTHONPATH=os.pathsep.join(map(str, folders)))["uses"]
        digests.append(found["digest"])
    assert digests[0] != digests[1] and digests[0] == digests[2]


# In one process.


def of(*functions: Any, classes: Any = (), **options: Any) -> Fingerprint:
    options = {"is_tensor": lambda value: False, "is_layer": lambda value: False, **options}
    return fingerprint(functions, classes, **options)


def define(source: str, **names: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "user_module", **names}
    exec(compile(textwrap.dedent(source), "user_module.py", "exec"), scope)
    return scope


REBOUND = {
    "global": ("K = 2\ndef f(x): return x * K", "K = 3", "global K"),
    "helper": ("def g(x): return x\ndef f(x): return g(x)", "g = lambda x: -x", "global g"),
    "appearing": ("def f(x): return K", "K = 3", "global K"),
    "class_attribute": ("class C:\n k = 2\nc = C()\ndef f(x): return c.k", "C.k = 3", "user_module.C.k"),
    "method": ("class C:\n def m(s): return 2\nc = C()\ndef f(x): return c.m()", "C.m = print", "user_module.C.m"),
    "code": ("def g(x): return x\ndef f(x): return g(x)", "g.__code__ = (lambda x: 0).__code__", "function user"),
    "default": ("def f(x, k=2): return x", "f.__defaults__ = (3,)", "function user_module.f"),
    "cell": (
        """
        def make():
            k = 2
            def f(x): return x * k
            def put(v):
                nonlocal k
                k = v
            return f, put
        f, put = make()
        """,
        "put(3)",
        "a closure cell",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REBOUND)
def test_rebinding_is_seen_at_run_time(name: str) -> None:
    source, change, what = REBOUND[name]
    scope = define(source)
    before = of(scope["f"])
    assert before.rebound() == ""
    exec(change, scope)
    assert before.rebound().startswith(what)
    assert of(scope["f"]).digest != before.digest
    assert of(scope["f"]).rebound() == ""


def test_what_is_skipped_is_left_out() -> None:
    scope = define("class C: pass\nc = C()\nc.k = 2\ndef f(x): return c.k")
    before = of(scope["f"], skip=lambda value: value is scope["c"])
    scope["c"].k = open(os.devnull)  # noqa: SIM115
    with scope["c"].k:
        after = of(scope["f"], skip=lambda value: value is scope["c"])
        assert after.digest == before.digest and after.opaque == ()
        assert of(scope["f"]).opaque != ()


def test_cycles_and_depth_are_survived() -> None:
    scope = define(
        """
        class Node: pass
        ring = Node(); ring.next = Node(); ring.next.next = ring
        loop = [1]; loop.append({"loop": loop})
        chain = None
        for _ in range(100_000):
            node = Node(); node.next = chain; chain = node
        def f(x): return ring, loop
        def g(x): return chain
        """
    )
    assert of(scope["f"]).opaque == () and of(scope["f"]).digest == of(scope["f"]).digest
    assert any("nested too deeply" in line for line in of(scope["g"]).opaque)
    before = of(scope["f"]).digest
    scope["loop"][1]["more"] = 1
    assert of(scope["f"]).digest != before


def test_user_code_in_a_library_s_place_is_followed() -> None:
    import json.decoder

    own = define("def scan(self, s): return 2")["scan"]
    plain = of(lambda s: json.decoder.JSONDecoder().decode(s))
    original = json.decoder.JSONDecoder.decode
    json.decoder.JSONDecoder.decode = own
    try:
        patched = of(classes=[json.decoder.JSONDecoder])
    finally:
        json.decoder.JSONDecoder.decode = original
    assert any("user_module.scan" in label for label in patched.ingredients)
    assert plain.opaque == patched.opaque == ()


def test_sets_of_equal_names_have_one_digest() -> None:
    source = "S = {lambda x, k=i: x * k for i in %s}\ndef f(x): return S"
    digests = {of(define(source % order)["f"]).digest for order in ("range(5)", "range(4, -1, -1)")}
    assert len(digests) == 1
    assert of(define(source % "range(6)")["f"]).digest not in digests


def test_a_library_s_method_that_may_call_back_counts() -> None:
    class Decoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> Any:
            return super().raw_decode(s, idx)

        def save(self) -> None: ...

    labels = of(classes=[Decoder]).ingredients
    assert any(label.startswith("attribute raw_decode of class") for label in labels)
    assert not any("save" in label for label in labels)


@pytest.mark.torch
def test_torch_by_version_and_its_values_as_data() -> None:
    pytest.importorskip("torch.nn")
    import torch

    source = """
    import torch
    import torch.nn.functional as F
    from torch.nn.functional import max_pool2d, relu
    DTYPE, SIZE, DEVICE, LAYOUT = torch.float32, torch.Size([2]), torch.device("cpu"), torch.strided
    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.sign() * 2
    @torch.no_grad()
    def helper(x): return x * 3
    class Block(torch.nn.Module):
        def forward(self, x):
            x = F.gelu(relu(max_pool2d(helper(Sign.apply(x)), 2)))
            return x.to(DTYPE), SIZE, DEVICE, LAYOUT, torch.cuda.is_available()
    """
    options = dict(
        is_tensor=lambda value: isinstance(value, torch.Tensor),
        is_layer=lambda value: isinstance(value, torch.nn.Module),
    )

    def probe(old: str = "", new: str = "") -> Fingerprint:
        scope = define(textwrap.dedent(source).replace(old, new) if old else source)
        return of(classes=[scope["Block"]], **options)

    base = probe()
    assert base.opaque == () and base.externals == ()
    assert base.ingredients["library torch"] == torch.__version__
    assert len(base.ingredients) < 60, sorted(base.ingredients)
    assert probe().digest == base.digest
    for old, new in {
        "torch.float32": "torch.float16", "Size([2])": "Size([3])", '"cpu"': '"meta"', "sign() * 2": "sign() * 3",
        "x * 3": "x * 4", "F.gelu": "F.relu", "torch.strided": "torch.sparse_coo",
    }.items():  # fmt: skip
        assert probe(old, new).digest != base.digest, old


@pytest.mark.torch
def test_cost_for_a_bert(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch.nn")
    import torch

    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel(
        transformers.BertConfig(num_hidden_layers=12, hidden_size=48, num_attention_heads=4, intermediate_size=48)
    )
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        found = fingerprint(
            [type(model).forward],
            [type(layer) for layer in model.modules()],
            is_tensor=lambda value: isinstance(value, torch.Tensor),
            is_layer=lambda value: isinstance(value, torch.nn.Module),
        )
        seconds.append(time.perf_counter() - start)
    assert found.opaque == () and found.externals == ()
    assert found.ingredients["library transformers"] == f"transformers {transformers.__version__}"
    with capsys.disabled():
        print(f"\nfingerprint of a 12-layer BERT: first {1e3 * seconds[0]:.1f} ms, then {1e3 * min(seconds):.1f} ms")
