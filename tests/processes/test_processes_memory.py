"""Memory stays where it is over 200 versions: superseded ones, changed weights, dropped layers, released ones."""

from __future__ import annotations

import pytest
from process_support import Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

MEGABYTE = 1e6

#: Real sessions on weights of 1 MB, which an engine packs into as much again; but the tracer is asked once for each
#: structure, since 200 captures take minutes: the other times the method runs on its twin as it would under a trace.
SCRIPT = """
import gc
from hybrid_infer import _pace, release

real, known = TorchFrontend.capture, {}

def capture(self, tracee, dynamic, ints):
    key = tracee.name, dynamic, ints, None if dynamic else tuple(map(tuple, (t.shape for t in tracee.tensors)))
    if key not in known:
        known[key] = real(self, tracee, dynamic, ints)
    else:
        tracee.run(tracee.weights, tracee.tensors, list(tracee.ints))
    return known[key]

TorchFrontend.capture = capture

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.flag = torch.nn.Linear(512, 512), 0

    @inference(weights="bound")
    def forward(self, x):
        return self.linear(x) if self.flag >= 0 else x

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

keeper, x = Layer(), torch.randn(4, 512)
keeper.flag = 1000
keeper(x)  # what all the versions have in common outlives each of the others
gc.collect()
gc.disable()  # where layers are large it runs too late

def versions(number):
    layer = Layer()
    for flag in range(8):
        layer.flag = 8 * number + flag
        check(layer.forward, x)
    return layer

def dropped(number):
    versions(number)

def released(number):
    layers.append(versions(100 + number))
    release(layers[-1])

def changed(number):
    layer = layers[0]
    for rows in (1, 2, 3, 4, 5, 6, 7, 8):
        check(layer.forward, torch.randn(rows, 512))
    layer.linear.weight = torch.nn.Parameter(torch.randn(512, 512) / 50)

_pace._WINDOW = 10_000  # each change is looked up, although the eager method would take no longer
layers, sizes = [], []
if argument == "changed":
    layers.append(Layer())
work = {"dropped": dropped, "released": released, "changed": changed}[argument]
for number in range(25):
    if number >= 5 and argument == "released":
        layers[-5].linear = None  # a released layer's own weights are the program's business
    work(number)
    sizes.append(resident())
result = {**counts(), "sizes": sizes, "descriptors": len(os.listdir("/proc/self/fd"))}
"""


@pytest.mark.parametrize("what", ["dropped", "released", "changed"])
def test_memory_stays_where_it_is_over_200_versions(program: Program, what: str) -> None:
    found = program.run(SCRIPT, what, timeout=200)
    assert found["eager_calls"] == 0
    if what == "changed":
        assert found["captures"] <= 4 and found["bindings"] > 40
    else:
        assert found["captures"] == found["bindings"] == 201
    grown = [(size - found["sizes"][4]) / MEGABYTE for size in found["sizes"]]
    # 160 versions come after the fifth layer: kept, they would take 320 MB.
    assert grown[-1] < 40, grown
    # Each entry in use has a descriptor.
    assert found["descriptors"] < 60


def test_release_gives_back_the_arena_of_a_large_call(program: Program) -> None:
    script = """
import gc
from hybrid_infer import release

class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 4096), torch.nn.Linear(4096, 64)

    @inference()
    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6

layer = Wide()
for rows in (2, 3, 4):
    layer(torch.randn(rows, 64))
sizes = [resident()]
layer(torch.randn(20_000, 64))  # 20,000 x 4,096 floats in between: 330 MB
sizes.append(resident())
release(layer)
sizes.append(resident())
check(layer.forward, torch.randn(5, 64))
result = sizes, counts()["disk_loads"]
"""
    (before, large, released), loads = program.run(script)
    assert large - before > 250
    assert released - before < 60, (before, large, released)
    assert loads == 1
