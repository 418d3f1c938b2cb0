"""What changes the fingerprint of a method and what does not, each across two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import hybrid_infer

pytestmark = pytest.mark.processes

FAKE = """
class Tensor: pass
class Layer: pass
"""

#: Imports every case in one process and prints what the fingerprint of each says.
RUNNER = """
import importlib, json, sys, traceback
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
    opaque: tuple[str, ...] = field(default=())


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
case("lru_cache", "import functools\n@functools.lru_cache\ndef g(x): return 2\ndef f(x): return g(x)", "return 2", "return 3")
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
case("named_tuple", "from collections import namedtuple\nP = namedtuple('P', 'a b')\nT = P(1, 2)\ndef f(x): return T.a", "1, 2", "1, 3")  # fmt: skip
case("global_regex", "import re\nR = re.compile('a+')\ndef f(x): return R.match(x)", "a+", "b+")
case("math_constant", "import math\nA = math.pi\ndef f(x): return x * A", "math.pi", "math.e")
case("builtin", "g = len\ndef f(x): return g(x)", "g = len", "g = sum")
case("eval", "def g(x): return x * 2\ndef f(x): return eval('g(x)')", "x * 2", "x * 3")
case("globals_call", "def g(x): return x * 2\ndef f(x): return globals()['g'](x)", "x * 2", "x * 3")

# Objects.
case("instance", "class C:\n def __init__(s, k): s.k = k\nc = C(2)\ndef f(x): return x * c.k", "C(2)", "C(3)")
case("instance_method", "class C:\n def m(s, x): return x * 2\nc = C()\ndef f(x): return c.m(x)", "x * 2", "x * 3")
case("instance_call", "class C:\n def __call__(s, x): return x * 2\nc = C()\ndef f(x): return c(x)", "x * 2", "x * 3")
case("instance_operator", "class C:\n def __mul__(s, x): return x * 2\nc = C()\ndef f(x): return c * x", "x * 2", "x * 3")
case("slots", "class C:\n __slots__ = ('k', 'n')\nc = C()\nc.k = 2\ndef f(x): return x * c.k", "c.k = 2", "c.k = 3")
case("private_slot", "class C:\n __slots__ = ('__k',)\n def __init__(s, k): s.__k = k\nc = C(2)\ndef f(x): return c", "C(2)", "C(3)")  # fmt: skip
case("frozen", "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n k: int\nc = C(2)\ndef f(x): return c.k", "C(2)", "C(3)")  # fmt: skip
case("nested_instance", "class C: pass\nc = C()\nc.d = C()\nc.d.up = c\nc.d.k = [2]\ndef f(x): return c.d.k", "[2]", "[3]")
case("list_subclass", "class L(list): pass\nl = L([1, 2])\ndef f(x): return l[0]", "[1, 2]", "[1, 3]")
case("dict_subclass", "class D(dict): pass\nd = D(a=2)\ndef f(x): return d['a']", "a=2", "a=3")
case("int_subclass", "class I(int): pass\ni = I(2)\ndef f(x): return x * i", "I(2)", "I(3)")
case("ordered_dict", "from collections import OrderedDict\nd = OrderedDict(a=2)\ndef f(x): return d['a']", "a=2", "a=3")
case("default_dict", "from collections import defaultdict\nd = defaultdict(int, a=2)\ndef f(x): return d['a']", "a=2", "a=3")
case("bound_method", "class C:\n k = 2\n def m(s, x): return x * s.k\nm = C().m\ndef f(x): return m(x)", "k = 2", "k = 3")
case("bound_builtin", "l = [1, 2]\ng = l.index\ndef f(x): return g(x)", "[1, 2]", "[2, 1]")
case("constructed", "class C:\n def __init__(s): s.k = 2\ndef f(x): return x * C().k", "s.k = 2", "s.k = 3")
case("metaclass", "class M(type):\n def k(c): return 2\nclass C(metaclass=M): pass\ndef f(x): return C.k()", "return 2", "return 3")
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
case("layer_new_base", LAYER, "class Block(Base)", "class Mixin:\n    def __call__(self): return 1\nclass Block(Mixin, Base)")
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
case("external_layer_class", LAYER + "m = Block()\ndef f(x): return m(x)\nFUNCTIONS = [f]\nCLASSES = []\n", "+ 43", "+ 44")
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
case("docstring_used", "def g(x, y): return x\ndef f(x):\n    'relu'\n    return g(x, 'relu')", "    'relu'\n", "    'gelu'\n", **SAME)  # fmt: skip
case("literal_like_docstring", "def g(x, y): return x\ndef f(x):\n    'relu'\n    return g(x, 'relu')", "g(x, 'relu')", "g(x, 'gelu')")  # fmt: skip
case("docstring_nested", "def f(x):\n    def g(y):\n        'Old.'\n        return y\n    return g(x)", "Old.", "New.", **SAME)
case("docstring_local_class", "def f(x):\n    class A:\n        'Old.'\n        k = 2\n    return A.k", "Old.", "New.", **SAME)
case("docstring_module", "'Old.'\ndef f(x): return x", "Old.", "New.", **SAME)
case("docstring_helper", "def g(x):\n    'Old.'\n    return x\ndef f(x): return g(x)", "Old.", "New.", **SAME)
case("docstring_cached", "import functools\nclass C:\n @functools.cached_property\n def a(s):\n  'Old.'\n  return 1\nc = C()\ndef f(x): return c.a", "Old.", "New.", **SAME)  # fmt: skip
case("position", "X = 1\ndef f(x):\n    return x + 1", "X = 1\n", "X = 1\n" + "\n" * 300, **SAME)
case("position_lambda", "GS = [\n lambda x: x,\n]\ndef f(x): return GS[0](x)", "GS = [\n", "GS = [\n\n\n", **SAME)
case("position_local_class", "def f(x):\n    class A:\n        k = 2\n    return A.k", "def f", "\n\n\ndef f", **SAME)
case("annotation", "def f(x: int): return x", "int", "float", **SAME)
case("unrelated_function", "def g(x): return x * 2\ndef f(x): return x", "x * 2", "x * 3", **SAME)
case("unrelated_constant", "A = 2\nB = 3\ndef f(x): return x * A", "B = 3", "B = 4", **SAME)
case("unrelated_class", "class C:\n k = 2\ndef f(x): return x", "k = 2", "k = 3", **SAME)
case("unrelated_import", "import math\ndef f(x): return x", "import math", "import json, math", **SAME)
case("unrelated_in_helper_module", "from . import a\ndef f(x): return a.g(x)", "x * 3", "x * 4", **SAME, a="def g(x): return x * 2\ndef h(x): return x * 3")  # fmt: skip
case("unrelated_module", "from . import a\nfrom . import b\ndef f(x): return a.g(x)", "x * 3", "x * 4", **SAME, a="def g(x): return x * 2", b="def h(x): return x * 3")  # fmt: skip
case("name_of_attribute", "def norm(x): return x * 2\ndef f(x): return x.norm()", "x * 2", "x * 3", **SAME)
case("logger", "import logging\nlog = logging.getLogger('a')\nlog.addHandler(logging.StreamHandler())\ndef f(x):\n log.info('a')\n return x", "import logging", "import logging; logging.basicConfig()", **SAME)  # fmt: skip
for edit, number in {"save": 17, "constructor": 29, "repr": 53, "unused_method": 59, "outer_init": 61, "outer_forward": 67}.items():  # fmt: skip
    case(f"layer_unrelated_{edit}", LAYER, f"{number}", f"{number}0", **SAME)
case("layer_unrelated_attribute", LAYER, '"base"', '"other"', **SAME)
case("layer_docstring", LAYER, "A block.", "One block.", **SAME)
case("layer_comment", LAYER, "    def unused", "    # why\n    def unused", **SAME)
case("layer_new_method", LAYER, "    def unused", "    def export(self): return 1\n    def unused", **SAME)
case("name_accessor", "class W:\n def __getattr__(s, n): return getattr(s.__class__, n)\n def save(s): return 2\nw = W()\ndef f(x): return w", "return 2", "return 3", **SAME)  # fmt: skip


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
