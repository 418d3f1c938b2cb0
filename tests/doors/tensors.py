"""Arrays and tensors, bare and held by other things, and layers."""

from __future__ import annotations

from doors.kind import Kind

KINDS = (
    Kind(
        "numpy", "np.array([2.0, 3.0])", "float(v.sum())",
        others=("np.array([2.0, 5.0])",),
        inside=(("v[0] = 7.0", "v[0] = 2.0"), ("v *= 2", "v /= 2")),
    ),
    Kind(
        "numpy_view", "np.arange(1.0, 9.0)[2:4]", "float(v.sum())",
        inside=(("behind(v)[0] = 9.0", "behind(v)[0] = 3.0"),),
        own="""
            def behind(v):
                return v if v.base is None else v.base[2:4]
        """,
    ),
    Kind("numpy_large", "np.ones(1 << 18)", "float(v[77777])", inside=(("v *= 9", "v /= 9"),)),
    Kind("numpy_zero", "np.array(2.0)", "float(v)", inside=(("v[...] = 7.0", "v[...] = 2.0"),)),
    Kind(
        "numpy_objects", "np.array([[2.0], None], dtype=object)", "v[0][0]",
        inside=(("v[0][0] = 5.0", "v[0][0] = 2.0"),),
    ),
    Kind("numpy_scalar", "np.float64(2.0)", "float(v)", others=("np.float64(3.0)",)),
    Kind("numpy_type", "np.float32(2.0)", "(2.0 if v.dtype == np.float32 else 3.0)", others=("np.float64(2.0)",)),
    Kind("tensor", "tensor([2.0])", "v.sum()", others=("tensor([3.0])",), inside=(("fill(v, 5.0)", "fill(v, 2.0)"),)),
    Kind(
        "tensor_in", "{'a': [tensor([2.0])]}", "v['a'][0].sum()",
        inside=(
            ("fill(v['a'][0], 5.0)", "fill(v['a'][0], 2.0)"),
            ("v['a'][0] = tensor([4.0])", "v['a'][0] = tensor([2.0])"),
        ),
    ),
    Kind(
        "tensor_tuple", "((tensor([2.0]),),)", "v[0][0].sum()",
        others=("((tensor([3.0]),),)",),
        inside=(("fill(v[0][0], 5.0)", "fill(v[0][0], 2.0)"),),
    ),
    Kind(
        "tensor_object", "types.SimpleNamespace(a=tensor([2.0]))", "v.a.sum()",
        inside=(("fill(v.a, 5.0)", "fill(v.a, 2.0)"), ("v.a = tensor([4.0])", "v.a = tensor([2.0])")),
    ),
    Kind(
        "tensor_slots", "Slotting(tensor([2.0]))", "v.a.sum()",
        inside=(("fill(v.a, 5.0)", "fill(v.a, 2.0)"), ("v.a = tensor([4.0])", "v.a = tensor([2.0])")),
        own="""
            class Slotting:
                __slots__ = ('a',)
                def __init__(self, a):
                    self.a = a
        """,
    ),
    Kind(
        "parameter", "parameter([2.0])", "v.sum()",
        others=("parameter([3.0])",),
        inside=(("fill(v, 5.0)", "fill(v, 2.0)"),),
    ),
    Kind(
        "layer", "Scaling()", "v(x).abs().sum()",
        others=("Scaling(3.0)",),
        inside=(
            ("v.a = 5.0", "v.a = 2.0"),
            ("fill(v.weight, 5.0)", "fill(v.weight, 2.0)"),
            ("v.forward = lambda x: x * 9.0", "del v.forward"),
            ("v.b['c'] = 5.0", "v.b['c'] = 1.0"),
        ),
        own="""
            class Scaling(Layer):
                def __init__(self, a=2.0):
                    super().__init__()
                    self.a, self.b, self.weight = a, {'c': 1.0}, parameter([2.0])
                def forward(self, x):
                    return x * self.weight * self.a * self.b['c']
        """,
    ),
)
