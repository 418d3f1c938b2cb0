"""What can be called, classes and modules."""

from __future__ import annotations

from doors.kind import Kind

KINDS = (
    Kind(
        "function", "doubling", "v(2.0)",
        others=("tripling",),
        inside=(
            ("v.__defaults__ = (5.0,)", "v.__defaults__ = (2.0,)"),
            ("v.__kwdefaults__['c'][0] = 5.0", "v.__kwdefaults__['c'][0] = 1.0"),
            ("v.__kwdefaults__ = {'c': [8.0]}", "v.__kwdefaults__ = {'c': [1.0]}"),
            ("v.factor = 5.0", "v.factor = 1.0"),
        ),
        own="""
            def doubling(x, b=2.0, *, c=[1.0]):
                return x * b * c[0] * doubling.factor
            doubling.factor = 1.0
            def tripling(x):
                return x * 3
        """,
    ),
    Kind(
        "function_code", "first", "v(2.0)",
        inside=(("v.__code__ = second.__code__", "v.__code__ = kept.__code__"),),
        own="""
            def first(x):
                return x * 2
            def kept(x):
                return x * 2
            def second(x):
                return x * 3
        """,
    ),
    Kind("lambda", "(lambda: 2.0)", "v()", others=("(lambda: 3.0)",)),
    Kind(
        "closure", "counting(2.0)", "v()",
        others=("counting(4.0)",),
        inside=(("v.set(5.0)", "v.set(2.0)"), ("v.deep[0] = 5.0", "v.deep[0] = 1.0")),
        own="""
            def counting(factor):
                deep = [1.0]
                def get():
                    return factor * deep[0]
                def set(value):
                    nonlocal factor
                    factor = value
                get.set, get.deep = set, deep
                return get
        """,
    ),
    Kind(
        "partial", "functools.partial(product, [2.0], b=[3.0])", "v()",
        others=("functools.partial(product, [4.0], b=[3.0])",),
        inside=(
            ("v.args[0][0] = 5.0", "v.args[0][0] = 2.0"),
            ("v.keywords['b'][0] = 5.0", "v.keywords['b'][0] = 3.0"),
            ("v.keywords['b'] = [7.0]", "v.keywords['b'] = [3.0]"),
        ),
        own="""
            def product(a, b):
                return a[0] * b[0]
        """,
    ),
    Kind(
        "bound", "Owner().get", "v()",
        others=("Owner(4.0).get",),
        inside=(
            ("v.__self__.a = 5.0", "v.__self__.a = 2.0"),
            ("Owner.get.__defaults__ = (5.0,)", "Owner.get.__defaults__ = (1.0,)"),
        ),
        own="""
            class Owner:
                def __init__(self, a=2.0):
                    self.a = a
                def get(self, b=1.0):
                    return self.a * b
        """,
    ),
    Kind("bound_in_c", "{'a': 2.0}.get", "v('a')", inside=(("v.__self__['a'] = 5.0", "v.__self__['a'] = 2.0"),)),
    Kind(
        "callable", "Calling()", "v()",
        inside=(("v.a = 5.0", "v.a = 2.0"), ("Calling.__call__ = lambda self: 7.0", "Calling.__call__ = Calling.kept")),
        own="""
            class Calling:
                def __init__(self):
                    self.a = 2.0
                def __call__(self):
                    return self.a
                kept = __call__
        """,
    ),
    Kind(
        "class", "Chosen", "(v.a * v.scale())",
        others=("Others",),
        inside=(
            ("v.a = 5.0", "v.a = 2.0"),
            ("v.b['c'] = 5.0", "v.b['c'] = 1.0"),
            ("v.scale = staticmethod(lambda: 9.0)", "v.scale = vars(v)['kept']"),
        ),
        own="""
            class Chosen:
                a, b = 2.0, {'c': 1.0}
                @classmethod
                def scale(kind):
                    return kind.b['c']
                kept = scale
            class Others(Chosen):
                a = 3.0
        """,
    ),
    Kind(
        "metaclass", "Made", "v.a",
        inside=(("type(v).a = 5.0", "type(v).a = 2.0"),),
        own="""
            class Meta(type):
                a = 2.0
            class Made(metaclass=Meta):
                pass
        """,
    ),
    Kind("module", "types.ModuleType('options')", "getattr(v, 'a', 2.0)", inside=(("v.a = 5.0", "del v.a"),)),
    Kind(
        "remembered", "remembered", "v()",
        inside=(("SOURCE[0] = 5.0; v.cache_clear()", "SOURCE[0] = 2.0; v.cache_clear()"),),
        own="""
            SOURCE = [2.0]
            @functools.lru_cache
            def remembered():
                return SOURCE[0]
        """,
    ),
)
