"""A change of the code that a method reaches, or of a value that it reads, changes the fingerprint."""

from __future__ import annotations

from typing import Any

import pytest
from fingerprint_support import Case, Cases, check, compared

pytestmark = pytest.mark.processes

CASES = Cases()
case = CASES.add

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
CONTEXT_AROUND = """
import contextlib
k = 2
@contextlib.contextmanager
def scope(by):
    global k
    k = by + 5
    yield
@scope(3)
def f(x): return x * k
"""
case("context_around", CONTEXT_AROUND, "by + 5", "by + 6")
case("context_around_argument", CONTEXT_AROUND, "scope(3)", "scope(4)")
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
for name, attribute in {"attribute": "k", "private": "_k", "dunder": "__k__"}.items():
    case(
        f"enum_{name}",
        f"import enum\nclass E(enum.Enum):\n A = 1\n def __init__(s, v): s.{attribute} = v + 2\n"
        f"def f(x): return x * E.A.{attribute}",
        "v + 2",
        "v + 3",
    )
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
_EVALUATED = "import builtins\ndef g(x): return x * 2\nclass M:\n def eval(self): return 3\nm = M()\n"
case("eval_of_builtins", _EVALUATED + "def f(x): return m.eval() * builtins.eval('g(x)')", "x * 2", "x * 4")
case("eval_kept", _EVALUATED + "def f(x):\n e = builtins.eval\n return m.eval() * e('g(x)')", "x * 2", "x * 4")
case("eval_spread", _EVALUATED + "def f(x):\n a = ['g(x)']\n return builtins.eval(*a)", "x * 2", "x * 4")
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
    "module_computed_under_its_second_name",
    "from . import a\nfrom . import a as b\ndef get(m, n): return getattr(m, n)\n"
    "def f(x):\n a.h()\n return get(b, 'g' + x)()",
    "return 2",
    "return 3",
    a="def g(): return 2\ndef h(): return 4",
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
case("dot_format", "class P:\n def __str__(s): return '2'\np = P()\ndef f(x): return '{}'.format(p)", "'2'", "'3'")
case(
    "format_map",
    "class P:\n def __str__(s): return '2'\nd = {'p': P()}\ndef f(x): return '{p}'.format_map(d)",
    "return '2'",
    "return '3'",
)
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
    "odd_names_in_set",
    "class N:\n def __str__(s): raise ValueError\n"
    "class O:\n k = 2\n def __init__(s): s.__module__ = s.__qualname__ = N()\n"
    "S = {O(), O()}\ndef f(x): return [s.k for s in S]",
    "k = 2",
    "k = 3",
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


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compared(tmp_path_factory.mktemp("cases"), CASES)


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_edit(each: Case, results: dict[str, Any]) -> None:
    check(each, results)
