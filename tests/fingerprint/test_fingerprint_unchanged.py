"""What cannot change a result does not change the fingerprint."""

from __future__ import annotations

from typing import Any

import pytest
from fingerprint_support import LAYER, Case, Cases, check, compared, define, of

pytestmark = pytest.mark.processes

CASES = Cases()
case = CASES.add

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
    "computed_on_itself",
    "from . import a\nclass C:\n def k1(self): return 2\n def h(self, x): return x * 3\n"
    " def g(self, x): return getattr(self, f'k{x}')(), self.__dict__\n"
    "def f(x): return C().g(a.g())",
    "* 3",
    "* 4",
    **SAME,
    a="def g(): return 2\ndef h(x): return x",
)
case(
    "computed_on_itself_in_module",
    "from . import a, b\nclass C:\n def k1(self): return 2\n"
    " def g(self, x): return [getattr(self, n) for n in x], self.__dict__\n"
    "def f(x): return C().g(a.g()), b",
    "* 3",
    "* 4",
    **SAME,
    a="def g(): return 2",
    b="def h(x): return x * 3",
)
case(
    "computed_on_an_unrelated_class",
    "class D:\n def k(self): return 2\n def h(self, x): return x * 3\n"
    "class C:\n def m(self): return 5\n def g(self, x): return [getattr(self, n) for n in x]\n"
    "def f(x): return C().g(x), D().k()",
    "* 3",
    "* 4",
    **SAME,
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
# The name of Python's function, as a method: what the module holds beside is not evaluated.
case(
    "mode_of_a_layer",
    """
    class Layer:
        def eval(self): return self
        def save(self): return 2
    layer = Layer()
    started = 3
    def f(x):
        layer.eval()
        return [layer.eval() for _ in range(2)]
    """,
    "started = 3",
    "started = 4",
    **SAME,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compared(tmp_path_factory.mktemp("cases"), CASES)


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_edit(each: Case, results: dict[str, Any]) -> None:
    check(each, results)


def test_an_object_that_many_hold_is_taken_once() -> None:
    """What two hold, of which each is held by two, and so on, is small; written out it is 2**60 objects."""
    source = (
        "class Node:\n def __init__(self, *held): self.held = held\n"
        "def made(last):\n node = Node(last)\n for _ in range(60): node = Node(node, [node])\n return node\n"
        "top = made({last})\n"
        "def f(x): return x * top.held[0].held[0].held[0]\n"
    )
    digests = [of(define(source.format(last=last))["f"]).digest for last in (2, 2, 3)]
    assert digests[0] == digests[1] != digests[2]
