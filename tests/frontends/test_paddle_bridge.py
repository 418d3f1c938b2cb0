"""Paddle tensors shared with NumPy both ways, weights watched, gradients passed on."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_calls import slots  # noqa: E402

from hybrid_infer.frontends.paddle import FRONTEND  # noqa: E402

pytestmark = pytest.mark.paddle


ARRAYS = {
    "matrix": np.arange(12, dtype="float32").reshape(3, 4),
    "scalar": np.array(3.5, "float64"),
    "empty": np.zeros((0, 4), "float32"),
    "bool": np.array([True, False, True]),
    "half": np.ones((2, 3), "float16"),
    "int64": np.arange(5),
    "uint8": np.arange(5, dtype="uint8"),
    "complex64": np.ones(3, "complex64") * 1j,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_bridge_shares_memory_both_ways(name):
    source = ARRAYS[name].copy()
    dtype = str(source.dtype)
    tensor = FRONTEND.importer(dtype, dtype, "cpu")(source)
    assert type(tensor) is paddle.Tensor
    assert tensor.stop_gradient
    assert FRONTEND.describe(tensor) == (dtype, source.shape, "cpu")
    back = FRONTEND.exporter(dtype, dtype)(tensor)
    np.testing.assert_array_equal(back, source)
    assert back.shape == source.shape
    if source.size:
        assert tensor.data_ptr() == source.ctypes.data == back.ctypes.data


@pytest.mark.parametrize("cut", [np.s_[:, ::2], np.s_[::-1], np.s_[1:, 1:3]])
def test_arrays_and_tensors_of_other_layouts(cut):
    source = np.arange(24, dtype="float32").reshape(4, 6)
    tensor = FRONTEND.importer("float32", "float32", "cpu")(source[cut])
    np.testing.assert_array_equal(tensor.numpy(), source[cut])
    assert tensor.is_contiguous()
    view = paddle.to_tensor(source).t()
    exported = FRONTEND.exporter("float32", "float32")(view)
    np.testing.assert_array_equal(exported, source.T)
    assert exported.flags.c_contiguous


def test_read_only_array_is_copied():
    source = np.ones(3, "float32")
    source.flags.writeable = False
    FRONTEND.importer("float32", "float32", "cpu")(source).add_(paddle.ones([3]))
    np.testing.assert_array_equal(source, [1, 1, 1])


def test_lifetimes():
    source = np.ones(1000, "float32")
    seen = weakref.ref(source)
    tensor = FRONTEND.importer("float32", "float32", "cpu")(source)
    part = tensor.reshape([10, 100])
    del source, tensor
    gc.collect()
    assert seen() is not None
    assert float(part.sum()) == 1000
    del part
    gc.collect()
    assert seen() is None
    tensor = paddle.ones([1000])
    array = FRONTEND.exporter("float32", "float32")(tensor)
    del tensor
    gc.collect()
    churn = [paddle.zeros([1000]) for _ in range(20)]
    assert array.sum() == 1000 and len(churn) == 20


def test_importers_do_not_share_with_each_other():
    load = FRONTEND.importer("float32", "float32", "cpu")
    one, two = load(np.ones(3, "float32")), load(np.zeros((2, 2), "float32"))
    assert one.shape == [3] and two.shape == [2, 2]
    np.testing.assert_array_equal(one.numpy(), [1, 1, 1])


def test_bfloat16_travels_as_float32():
    tensor = paddle.to_tensor([1.0, 2.5, -3.25]).astype("bfloat16")
    wire = FRONTEND.exporter("bfloat16", "float32")(tensor)
    assert wire.dtype == np.float32
    back = FRONTEND.importer("bfloat16", "float32", "cpu")(wire)
    assert back.dtype == paddle.bfloat16
    np.testing.assert_array_equal(back.astype("float32").numpy(), [1.0, 2.5, -3.25])


def test_parameters_are_exported_although_they_require_a_gradient():
    weight = paddle.nn.Linear(3, 3).weight
    assert FRONTEND.exporter("float32", "float32")(weight).ctypes.data == weight.data_ptr()


# ------------------------------------------------------------------------------------------------- watching


def writers():
    def step(linear, optimiser):
        linear(paddle.ones([1, 8])).sum().backward()
        paddle.optimizer.SGD(0.1, parameters=linear.parameters()).step() if optimiser else None

    def no_grad(write):
        def apply(linear):
            with paddle.no_grad():
                write(linear)

        return apply

    return {
        "set_value": lambda linear: linear.weight.set_value(linear.weight.numpy() + 1),
        "copy_": lambda linear: linear.weight.copy_(linear.weight.detach() + 1, True),
        "add_": no_grad(lambda linear: linear.weight.add_(paddle.ones([8, 8]))),
        "set_state_dict": lambda linear: linear.set_state_dict({k: v + 1 for k, v in linear.state_dict().items()}),
        "optimiser": lambda linear: step(linear, True),
        "assign": lambda linear: paddle.assign(linear.weight.detach() + 1, linear.weight),
        "replace": lambda linear: setattr(linear, "weight", linear.create_parameter([8, 8])),
    }


@pytest.mark.parametrize("values", [True, False])
def test_watch_of_an_untouched_layer(values):
    linear = paddle.nn.Linear(8, 8)
    check = FRONTEND.watch(slots(linear, [], set()), values=values)
    linear(paddle.ones([2, 8]))
    assert check()


# Eager Paddle has no backward pass of a linear layer in bfloat16 on a CPU, so no optimiser step there.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for dtype in ("float32", "bfloat16")
        for name in writers()
        if (name, dtype) != ("optimiser", "bfloat16")
    ],
)
def test_watch_sees_every_writer(name, dtype):
    linear = paddle.nn.Linear(8, 8)
    linear.to(dtype=dtype)
    check = FRONTEND.watch(slots(linear, [], set()))
    stamp, sample = FRONTEND.stamp(linear.weight), FRONTEND.sampler(linear.weight)
    seal = (stamp, sample())
    weight = linear.weight
    writers()[name](linear)
    assert not check()
    if name != "replace":
        assert (FRONTEND.stamp(weight), sample()) != seal


def test_samples_are_small():
    for shape in ([], [1], [0], [7], [1000], [3, 1000]):
        data = FRONTEND.sampler(paddle.ones(shape))()
        assert data is None or len(data) <= 8 * 4


def test_shares_memory():
    base = paddle.randn([4, 4])
    assert FRONTEND.shares_memory(base[1], [base])
    assert FRONTEND.shares_memory(base, [paddle.randn([2]), base.detach()])
    assert not FRONTEND.shares_memory(base, [paddle.randn([4, 4]), base + 1])
    array = np.ones((4, 4), "float32")
    load = FRONTEND.importer("float32", "float32", "cpu")
    assert FRONTEND.shares_memory(load(array[1:]), [load(array)])


# ------------------------------------------------------------------------------------------------- the rest


def test_keys_differ_where_descriptions_do():
    tensors = [
        paddle.zeros([2, 3]), paddle.zeros([3, 2]), paddle.zeros([2, 3], "float64"), paddle.zeros([2, 3], "int64"),
        paddle.zeros([6]), paddle.zeros([]), paddle.zeros([2, 3], "bool"), paddle.zeros([2, 3], "bfloat16"),
    ]  # fmt: skip
    assert len({FRONTEND.key(t) for t in tensors}) == len(tensors)
    assert FRONTEND.key(paddle.zeros([2, 3])) == FRONTEND.key(paddle.ones([2, 3]))
    assert FRONTEND.describe(tensors[-1]) == ("bfloat16", (2, 3), "cpu")


def test_constants_come_back_from_their_text():
    for value in (paddle.float32, paddle.int64, paddle.bfloat16, paddle.CPUPlace(), paddle.zeros([1]).place):
        assert isinstance(value, FRONTEND.constant_types)
        assert str(FRONTEND.constant(type(value), str(value))) == str(value)


def test_refusals():
    assert FRONTEND.refuse(paddle.zeros([2])) == ""
    assert FRONTEND.refuse(paddle.nn.Linear(2, 2).weight) == ""
    assert "sparse" in FRONTEND.refuse(paddle.sparse.sparse_coo_tensor([[0], [1]], [1.0], [2, 2]))


def test_default_dtype_is_ambient():
    before = FRONTEND.ambient()
    paddle.set_default_dtype("float64")
    try:
        assert FRONTEND.ambient() != before
    finally:
        paddle.set_default_dtype("float32")
    assert FRONTEND.ambient() == before


def test_transparent_in_static_mode_and_in_to_static():
    seen = []

    @paddle.jit.not_to_static
    def note():
        seen.append(FRONTEND.transparent())

    def forward(x):
        note()
        return x + 1

    assert not FRONTEND.transparent()
    paddle.enable_static()
    try:
        assert FRONTEND.transparent()
    finally:
        paddle.disable_static()
    paddle.jit.to_static(forward, full_graph=True)(paddle.ones([2]))
    assert seen == [True]
    assert not FRONTEND.transparent()


def test_gradients_reach_inputs_and_weights():
    linear, twin = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)
    twin.set_state_dict(linear.state_dict())
    x, y = paddle.randn([3, 4]), paddle.randn([3, 4])
    gradients = []
    for net in (linear, twin):
        a, b = x.detach(), y.detach()
        a.stop_gradient = False
        weights = [net.weight, net.bias]

        def function(p, q, net=net):
            return [paddle.tanh(net(p)) * q, (p > 0), p * 3]

        if net is linear:

            def forward(a=a, b=b):
                with paddle.no_grad():
                    return [t.detach() for t in function(a, b)]

            results = FRONTEND.eager_backward(function, forward, [a, b], weights)
        else:
            results = function(a, b)
        assert not results[0].stop_gradient and results[1].stop_gradient
        (results[0].sum() + (results[2] ** 2).sum()).backward()
        gradients.append([a.grad.numpy(), net.weight.grad.numpy(), net.bias.grad.numpy()])
        assert b.grad is None
    for given, wanted in zip(*gradients, strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-6)


def test_threads_and_versions():
    assert FRONTEND.threads() >= 1
    versions = FRONTEND.versions()
    assert "paddle2onnx" in versions
    assert {"paddlepaddle", "paddlepaddle-gpu"} & set(versions)
    assert FRONTEND.grad_enabled()
    with FRONTEND.no_grad():
        assert not FRONTEND.grad_enabled()


_EXECUTED = """
import faulthandler, time
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np
import paddle
from hybrid_infer.frontends.paddle import FRONTEND

bring = FRONTEND.importer("float32", "float32", "cpu")

@paddle.jit.to_static(full_graph=True)
def program(a, b):
    return (a * 2 + b).matmul(a)

def array():
    return np.ones((32, 32), "float32")

end = time.monotonic() + 4
with paddle.no_grad():
    while time.monotonic() < end:
        found = program(bring(array()), bring(array()))
        for _ in range(50):
            bring(array())
assert float(found[0, 0]) == 96
"""


@pytest.mark.processes
def test_threads_of_paddles_executor_may_let_go_of_what_came_from_numpy(tmp_path):
    """With tensors that came by DLPack, this program stopped for ever within a second."""
    script = tmp_path / "executed.py"  # whose source Paddle reads
    script.write_text(_EXECUTED)
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
