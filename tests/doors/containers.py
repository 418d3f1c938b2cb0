"""Containers: how many elements, which, in which order, of which type, and below them."""

from __future__ import annotations

from doors.kind import Kind

KINDS = (
    Kind("tuple", "(2.0, 3.0)", "sum(v)", others=("(2.0, 4.0)", "(2.0,)")),
    Kind(
        "tuple_deep", "(1.0, [2.0, {'a': [3.0]}])", "(v[1][0] + v[1][1]['a'][0])",
        inside=(("v[1][0] = 5.0", "v[1][0] = 2.0"), ("v[1][1]['a'][0] = 5.0", "v[1][1]['a'][0] = 3.0")),
    ),
    Kind(
        "list", "[2.0, 3.0]", "sum(v)",
        others=("[2.0, 4.0]",),
        inside=(("v.append(1.0)", "v.pop()"), ("v[0] = 7.0", "v[0] = 2.0"), ("v *= 2", "del v[2:]")),
    ),
    Kind("list_order", "[2.0, 3.0]", "v[0]", inside=(("v.reverse()", "v.reverse()"),)),
    Kind("list_deep", "[[1.0, [2.0]]]", "v[0][1][0]", inside=(("v[0][1][0] = 5.0", "v[0][1][0] = 2.0"),)),
    Kind(
        "dict", "{'a': 2.0, 'b': 1.0}", "sum(v.values())",
        others=("{'a': 4.0}",),
        inside=(
            ("v['a'] = 5.0", "v['a'] = 2.0"),
            ("v['c'] = 5.0", "del v['c']"),
            ("v.update(a=9.0)", "v.update(a=2.0)"),
        ),
    ),
    Kind(
        "dict_order", "{'a': 2.0, 'b': 3.0}", "next(iter(v.values()))",
        inside=(("v['a'] = v.pop('a')", "v['b'] = v.pop('b')"),),
    ),
    Kind(
        "dict_key", "{1: 2.0}", "(5.0 if next(iter(v)) is True else v[1])",
        inside=(("v.clear(); v[True] = 2.0", "v.clear(); v[1] = 2.0"),),
    ),
    Kind("dict_get", "{'a': 2.0}", "v.get('b', 4.0)", inside=(("v['b'] = 2.0", "del v['b']"),)),
    Kind(
        "nested", "{'a': [2.0, {'b': 3.0}]}", "(v['a'][0] * v['a'][1]['b'])",
        inside=(("v['a'][0] = 5.0", "v['a'][0] = 2.0"), ("v['a'][1]['b'] = 5.0", "v['a'][1]['b'] = 3.0")),
    ),
    Kind(
        "set", "{2.0, 3.0}", "max(v)",
        others=("{2.0, 4.0}",),
        inside=(("v.add(9.0)", "v.discard(9.0)"), ("v.remove(3.0); v.add(5.0)", "v.remove(5.0); v.add(3.0)")),
    ),
    Kind("frozenset", "frozenset({2.0})", "max(v)", others=("frozenset({3.0})",)),
    Kind(
        "ordered", "collections.OrderedDict(a=2.0, b=3.0)", "next(iter(v.values()))",
        others=("collections.OrderedDict(a=4.0)",),
        inside=(("v.move_to_end('a')", "v.move_to_end('a', last=False)"), ("v['a'] = 9.0", "v['a'] = 2.0")),
    ),
    Kind(
        "defaultdict", "collections.defaultdict(float, a=2.0)", "v['a']",
        others=("{'a': 3.0}",),
        inside=(("v['a'] = 5.0", "v['a'] = 2.0"),),
    ),
    Kind(
        "factory", "collections.defaultdict(two)", "v.default_factory()",
        inside=(("v.default_factory = three", "v.default_factory = two"),),
        own="""
            def two():
                return 2.0
            def three():
                return 3.0
        """,
    ),
    Kind("counter", "collections.Counter(a=2)", "v['a']", inside=(("v['a'] += 1", "v['a'] -= 1"),)),
    Kind(
        "chain", "collections.ChainMap({'a': 2.0}, {'a': 3.0})", "v['a']",
        inside=(("v['a'] = 5.0", "v['a'] = 2.0"), ("v.maps.reverse()", "v.maps.reverse()")),
    ),
    Kind("user_dict", "collections.UserDict(a=2.0)", "v['a']", inside=(("v['a'] = 5.0", "v['a'] = 2.0"),)),
    Kind(
        "deque", "collections.deque([2.0, 3.0])", "v[0]",
        inside=(("v.rotate()", "v.rotate()"), ("v[0] = 5.0", "v[0] = 2.0")),
    ),
    Kind("array", "array.array('d', [2.0, 3.0])", "v[0]", inside=(("v[0] = 5.0", "v[0] = 2.0"),)),
    Kind("bytearray", "bytearray(b'ab')", "float(v[0])", inside=(("v[0] = 33", "v[0] = 97"),)),
    Kind("memoryview", "memoryview(bytearray(b'ab'))", "float(v[0])", inside=(("v[0] = 33", "v[0] = 97"),)),
    Kind("ctypes", "ctypes.c_float(2.0)", "v.value", inside=(("v.value = 3.0", "v.value = 2.0"),)),
    Kind(
        "named", "Pair(2.0, [3.0])", "(v.left * v.right[0])",
        others=("Pair(2.5, [3.0])",),
        inside=(("v.right[0] = 5.0", "v.right[0] = 3.0"),),
        own="Pair = collections.namedtuple('Pair', 'left right')",
    ),
    Kind(
        "proxy", "types.MappingProxyType(BEHIND)", "v['a']",
        inside=(("BEHIND['a'] = 5.0", "BEHIND['a'] = 2.0"),),
        own="BEHIND = {'a': 2.0}",
    ),
    Kind(
        "values", "BELOW.values()", "sum(v)",
        inside=(("BELOW['a'] = 5.0", "BELOW['a'] = 2.0"), ("BELOW['b'] = 5.0", "del BELOW['b']")),
        own="BELOW = {'a': 2.0}",
    ),
    Kind(
        "queue", "queued(2.0)", "v.queue[0]",
        inside=(("v.queue[0] = 5.0", "v.queue[0] = 2.0"),),
        own="""
            def queued(a):
                found = queue.Queue()
                found.put(a)
                return found
        """,
    ),
)
