"""Instances: attributes in a dict, in slots, computed, of the class, of a base; classes that extend builtin ones."""

from __future__ import annotations

from doors.kind import Kind

KINDS = (
    Kind(
        "dataclass", "Fields()", "(v.a * v.inner.a * v.c[0])",
        others=("Fields(a=4.0)",),
        inside=(
            ("v.a = 5.0", "v.a = 2.0"),
            ("v.inner.a = 5.0", "v.inner.a = 3.0"),
            ("v.c[0] = 5.0", "v.c[0] = 1.0"),
            ("v.inner = Inner(6.0)", "v.inner = Inner()"),
        ),
        own="""
            @dataclasses.dataclass
            class Inner:
                a: float = 3.0
            @dataclasses.dataclass
            class Fields:
                a: float = 2.0
                inner: Inner = dataclasses.field(default_factory=Inner)
                c: list = dataclasses.field(default_factory=lambda: [1.0])
        """,
    ),
    Kind(
        "frozen", "Frozen()", "v.a",
        others=("dataclasses.replace(Frozen(), a=3.0)",),
        inside=(("object.__setattr__(v, 'a', 5.0)", "object.__setattr__(v, 'a', 2.0)"),),
        own="""
            @dataclasses.dataclass(frozen=True)
            class Frozen:
                a: float = 2.0
        """,
    ),
    Kind(
        "slots_dataclass", "SlotFields()", "(v.a + v.b[0])",
        inside=(("v.a = 5.0", "v.a = 2.0"), ("v.b[0] = 7.0", "v.b[0] = 1.0")),
        own="""
            @dataclasses.dataclass(slots=True)
            class SlotFields:
                a: float = 2.0
                b: list = dataclasses.field(default_factory=lambda: [1.0])
        """,
    ),
    Kind(
        "namespace", "types.SimpleNamespace(a=2.0, b=types.SimpleNamespace(c=3.0))", "(v.a * v.b.c)",
        inside=(
            ("v.a = 5.0", "v.a = 2.0"),
            ("v.b.c = 5.0", "v.b.c = 3.0"),
            ("v.__dict__['a'] = 7.0", "v.__dict__['a'] = 2.0"),
        ),
    ),
    Kind("argparse", "argparse.Namespace(a=2.0)", "v.a", inside=(("v.a = 5.0", "v.a = 2.0"),)),
    Kind(
        "plain", "Plain()", "(v.a * v.b[0])",
        others=("Plain(4.0)",),
        inside=(("v.a = 5.0", "v.a = 2.0"), ("v.b[0] = 5.0", "v.b[0] = 1.0"), ("v.b = [7.0]", "v.b = [1.0]")),
        own="""
            class Plain:
                def __init__(self, a=2.0):
                    self.a, self.b = a, [1.0]
        """,
    ),
    Kind(
        "fallback", "Fallback()", "v.a",
        inside=(("del v.a", "v.a = 2.0"), ("v.a = 4.0", "v.a = 2.0")),
        own="""
            class Fallback:
                a = 3.0
                def __init__(self):
                    self.a = 2.0
        """,
    ),
    Kind(
        "of_class", "Classed()", "v.a",
        inside=(
            ("Classed.a = 5.0", "Classed.a = 2.0"),
            ("v.a = 7.0", "del v.a"),
            ("v.__class__ = Other", "v.__class__ = Classed"),
        ),
        own="""
            class Classed:
                a = 2.0
            class Other(Classed):
                a = 9.0
        """,
    ),
    Kind(
        "of_base", "Derived()", "v.a",
        inside=(("Base.a = 5.0", "Base.a = 2.0"), ("Derived.a = 7.0", "del Derived.a")),
        own="""
            class Base:
                a = 2.0
            class Derived(Base):
                pass
        """,
    ),
    Kind(
        "guessing", "Guessing({'a': 2.0})", "v.a",
        inside=(("v._held['a'] = 5.0", "v._held['a'] = 2.0"),),
        own="""
            class Guessing:
                def __init__(self, held):
                    self._held = held
                def __getattr__(self, name):
                    if name.startswith('_'):
                        raise AttributeError(name)
                    return self._held[name]
        """,
    ),
    Kind(
        "slotted", "Slotted()", "(v.a * v.b[0])",
        inside=(("v.a = 5.0", "v.a = 2.0"), ("v.b[0] = 5.0", "v.b[0] = 1.0")),
        own="""
            class Slotted:
                __slots__ = ('a', 'b')
                def __init__(self):
                    self.a, self.b = 2.0, [1.0]
        """,
    ),
    Kind(
        "property", "Computed()", "v.a",
        inside=(
            ("v._a = 5.0", "v._a = 2.0"),
            ("v._deep['a'] = 5.0", "v._deep['a'] = 1.0"),
            ("Computed.a = property(lambda self: 11.0)", "Computed.a = Computed.kept"),
        ),
        own="""
            class Computed:
                def __init__(self):
                    self._a, self._deep = 2.0, {'a': 1.0}
                @property
                def a(self):
                    return self._a * self._deep['a']
                kept = a
        """,
    ),
    Kind(
        "cached", "Cached()", "v.a",
        inside=(
            ("v.__dict__['a'] = 7.0", "v.__dict__['a'] = v.b"),
            ("v.b = 3.0; v.__dict__.pop('a', None)", "v.b = 2.0; v.__dict__.pop('a', None)"),
        ),
        own="""
            class Cached:
                def __init__(self):
                    self.b = 2.0
                    self.a
                @functools.cached_property
                def a(self):
                    return self.b
        """,
    ),
    Kind(
        "descriptor", "Described()", "v.a",
        inside=(("vars(Described)['a'].factor = 5.0", "vars(Described)['a'].factor = 2.0"), ("v.b = 5.0", "v.b = 1.0")),
        own="""
            class Field:
                def __init__(self):
                    self.factor = 2.0
                def __get__(self, owner, kind=None):
                    return self.factor * owner.b
            class Described:
                a = Field()
                def __init__(self):
                    self.b = 1.0
        """,
    ),
    Kind(
        "listed", "Listed([2.0])", "(v[0] * v.a)",
        inside=(("v.a = 5.0", "del v.a"), ("v[0] = 7.0", "v[0] = 2.0")),
        own="""
            class Listed(list):
                a = 1.0
        """,
    ),
    Kind(
        "tupled", "Tupled([2.0])", "(v[0] * v.a)",
        inside=(("v.a = 5.0", "del v.a"),),
        own="""
            class Tupled(tuple):
                a = 1.0
        """,
    ),
    Kind(
        "floating", "Floating(2.0)", "(float(v) * v.a)",
        others=("Floating(4.0)",),
        inside=(("v.a = 5.0", "del v.a"),),
        own="""
            class Floating(float):
                a = 1.0
        """,
    ),
    Kind(
        "texted", "Texted('b')", "(len(v) * v.a)",
        others=("Texted('bb')",),
        inside=(("v.a = 5.0", "del v.a"),),
        own="""
            class Texted(str):
                a = 1.0
        """,
    ),
    Kind(
        "dict_class", "Looking(a=2.0)", "v['a']",
        inside=(("v.factor = 5.0", "del v.factor"), ("v['a'] = 5.0", "v['a'] = 2.0")),
        own="""
            class Looking(dict):
                factor = 1.0
                def __getitem__(self, name):
                    return dict.__getitem__(self, name) * self.factor
        """,
    ),
    Kind(
        "operators", "Operand()", "(len(v) + v[0] + float(v))",
        inside=(("v.a = 5", "v.a = 2"), ("Operand.__len__ = lambda self: 9", "Operand.__len__ = Operand.size")),
        own="""
            class Operand:
                def __init__(self):
                    self.a = 2
                def size(self):
                    return self.a
                __len__ = size
                def __getitem__(self, i):
                    return self.a
                def __float__(self):
                    return float(self.a)
        """,
    ),
    Kind(
        "chain_of_objects", "Link(Link(Link(None, 2.0)))", "v.next.next.a",
        inside=(
            ("v.next.next.a = 5.0", "v.next.next.a = 2.0"),
            ("v.next.next = Link(None, 7.0)", "v.next.next = Link(None, 2.0)"),
        ),
        own="""
            class Link:
                def __init__(self, next, a=1.0):
                    self.next, self.a = next, a
        """,
    ),
    Kind(
        "weak", "weakref.ref(KEPT)", "v().a",
        inside=(("KEPT.a = 5.0", "KEPT.a = 2.0"),),
        own="""
            class Kept:
                def __init__(self):
                    self.a = 2.0
            KEPT = Kept()
        """,
    ),
    Kind(
        "weak_proxy", "weakref.proxy(HELD)", "v.a",
        inside=(("HELD.a = 5.0", "HELD.a = 2.0"),),
        own="""
            class Held:
                def __init__(self):
                    self.a = 2.0
            HELD = Held()
        """,
    ),
    Kind(
        "weak_values", "weakref.WeakValueDictionary(a=LIVING)", "v['a'].a",
        inside=(("LIVING.a = 5.0", "LIVING.a = 2.0"),),
        own="""
            class Living:
                def __init__(self):
                    self.a = 2.0
            LIVING = Living()
        """,
    ),
    Kind(
        "local", "local(2.0)", "v.a",
        inside=(("v.a = 5.0", "v.a = 2.0"),),
        own="""
            def local(a):
                found = threading.local()
                found.a = a
                return found
        """,
    ),
    Kind(
        "logger", "quiet('doors')", "(2.0 if v.isEnabledFor(10) else 3.0)",
        inside=(("v.setLevel(10)", "v.setLevel(40)"),),
        own="""
            def quiet(name):
                found = logging.getLogger(name)
                found.setLevel(40)
                return found
        """,
    ),
)
