"""What a framework must offer, so that the rest of the library never imports it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hybrid_infer._types import TF32, Captured, Memory, Tracee


class Frontend(Protocol):
    """One framework: its tensors, its layers, its tracer.

    ``groups`` are the attributes in which a layer keeps parameters, buffers and sublayers in dicts;
    ``internal`` the attributes that belong to the framework and say nothing about the computation;
    ``hooks`` the dict attributes whose entries run user code around a layer's forward;
    ``tensor_types`` the exact classes of tensors that an engine can be given; ``constant_types`` the framework's own
    plain values (dtypes, devices), whose ``str`` tells them apart. Inside a trace tensors are of ``traced_types``, and
    of ``numbers_of_values`` what stands for a number that is no integer and is decided by the values of a tensor.
    ``ignored_writes`` are attributes that the tracer itself sets on layers, ``own_attributes`` those that the
    framework sets on tensors.
    """

    name: str
    layer_type: type
    tensor_type: type
    tensor_types: frozenset[type]
    constant_types: tuple[type, ...]
    traced_types: tuple[type, ...]
    numbers_of_values: tuple[type, ...]
    ignored_writes: frozenset[str]
    own_attributes: frozenset[str]
    groups: tuple[str, ...]
    internal: frozenset[str]
    hooks: tuple[str, ...]

    def constant(self, kind: type, text: str) -> Any:
        """The plain value of one of ``constant_types`` that ``str`` gave as `text`."""
        ...

    def spelling(self, layer: Any, name: str, value: Any) -> Any:
        """What counts of the value of an attribute: of some, the framework's layers change the spelling as they run."""
        ...

    def origin(self, line: tuple[str, int]) -> tuple[str, int]:
        """The line (file, number) of the user's that a line of code was made of which the tracer has rewritten."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Distributions whose versions decide what a capture gives, without importing them; empty where missing."""
        ...

    def namespaces(self) -> Mapping[str, Mapping[str, Any]]:
        """Where the framework's own code looks its functions up, by name: programs replace some of them there."""
        ...

    def ambient(self) -> Hashable:
        """State of this thread that a capture depends on (autocast, default dtype), cheap to read."""
        ...

    def asked(self, kinds: Collection[type]) -> Set[str]:
        """Names that the framework's own code asks by in layers of these classes, as user code may (``settings``)."""
        ...

    @property
    def askable(self) -> frozenset[str]:
        """The names that make a difference to ``settings`` and ``facts``."""
        ...

    @property
    def history(self) -> frozenset[str]:
        """Of these, the names by which code asks what a tensor has to do with gradients, beside ``is_grad_enabled``."""
        ...

    def settings(self, names: Set[str]) -> Callable[[], Hashable] | None:
        """Reads such settings as code that uses these names may ask for; None if it asks for none."""
        ...

    def facts(self, names: Set[str]) -> Callable[[Any], Hashable] | None:
        """Reads what such code may ask of a tensor that no signature holds: its layout, whether it needs a gradient."""
        ...

    def transparent(self) -> bool:
        """Is another tracer or transform active on this thread, so that a decorated method must step aside?"""
        ...

    def aside(self) -> str:
        """For what a method has just stepped aside, where that is no tracer or transform; empty if it is one."""
        ...

    def default_device(self) -> Hashable:
        """The device of tensors that are created without one, where a mode says so that is the only one on; else None.

        Asked only where `transparent` holds, and from then on at every call.
        """
        ...

    def tracing(self) -> bool:
        """Is a tracer active that passes objects of its own in place of tensors? Asked only when one was met."""
        ...

    def is_symbolic(self, value: Any) -> bool:
        """Is it an integer that depends on sizes or integers which vary? Asked of results while they are traced."""
        ...

    def latest(self, tensor: Any) -> Any:
        """What stands for a traced tensor after writes to it, in the trace under way."""
        ...

    def symbol(self, value: Any) -> Hashable:
        """What two such integers have in common if they are always equal."""
        ...

    def grad_enabled(self) -> bool: ...

    def packs(self) -> bool:
        """Is what a backward pass will need handed to the program meanwhile, as activation checkpointing does?"""
        ...

    def hooked(self, weights: Sequence[Any]) -> bool:
        """Has a weight a hook that would run twice, where a backward pass computes the method again?"""
        ...

    def requires_grad(self, tensor: Any) -> bool: ...

    def require_grad(self, tensor: Any) -> None:
        """Have a tensor require a gradient from now on."""

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], str]:
        """(dtype, shape, device) in this library's names, e.g. ("float32", (2, 8), "cpu")."""
        ...

    def key(self, tensor: Any) -> Hashable:
        """What the memo compares: cheap, and different wherever `describe` is."""
        ...

    def elements(self, tensor: Any) -> int:
        """How many elements a tensor has, as cheap as can be."""
        ...

    def refuse(self, tensor: Any) -> str:
        """Why no engine can be given this tensor (sparse, quantised, a lazy view); empty if it can."""
        ...

    def unformed(self, value: Any) -> bool:
        """Is it a weight that gets its shape, and its values, by the first call of its layer, or such a layer?"""
        ...

    def parts(self, tensor: Any) -> Sequence[Any]:
        """The tensors in plain memory that hold what it does: itself, unless it is sparse or quantised."""
        ...

    def exporter(self, dtype: str, wire: str) -> Callable[[Any], Any]:
        """A function from a tensor of `dtype` to a NumPy array of `wire`, sharing memory where they agree."""
        ...

    def importer(self, dtype: str, wire: str, device: str) -> Callable[[Any], Any]:
        """The way back: the tensor owns or shares the array's memory."""
        ...

    def memory(self, device: str) -> Memory | None:
        """The framework's tensors on a device, for engines that work in place; None where it is no NVIDIA GPU."""
        ...

    def stamp(self, tensor: Any) -> Hashable:
        """Cheap evidence that a weight is unchanged: data pointer and version counter, as far as they exist."""
        ...

    def sampler(self, tensor: Any) -> Callable[[], Hashable]:
        """A function that reads a few values of the tensor through a view made once."""
        ...

    def can_require_grad(self, tensor: Any) -> bool:
        """Is its element type one that can have a gradient?"""
        ...

    def watch(self, slots: Sequence[tuple[Any, Any, Any]], *, values: bool = True) -> Callable[[], bool]:
        """A check, as cheap as can be, that each (container, key, tensor) still holds that tensor, unchanged.

        Stamps and samples of all weights in one loop: it runs at every call of a decorated method. With `values` off
        only the memory has to be the same. A container that lost the key may raise KeyError or IndexError.
        """
        ...

    def forms(self, tensors: Sequence[Any]) -> Callable[[], bool] | None:
        """A check that type, shape, layout in memory and device of each are what they are now.

        None where nothing is quicker than to ask each by `describe` and `axes`. It may report a change where there is
        none.
        """
        ...

    def shares_memory(self, tensor: Any, others: Collection[Any]) -> bool: ...

    def extent(self, tensor: Any) -> tuple[int, int]:
        """The range of addresses that a tensor's elements lie in; (0, 0) for one without elements."""
        ...

    def axes(self, tensor: Any) -> Sequence[tuple[int, int]]:
        """The size of each axis, and how many elements further its next one lies; empty where there are no gaps."""
        ...

    def write(self, tensor: Any, content: Any) -> None:
        """Put the elements of another tensor of the same type and sizes into a tensor."""
        ...

    def capture(self, tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> Captured:
        """Trace the call into a graph. Raises TraceError with a reason for the user."""
        ...

    def eager_backward(
        self,
        function: Callable[..., Sequence[Any]],
        forward: Callable[[], Sequence[Any]],
        tensors: Sequence[Any],
        weights: Sequence[Any],
    ) -> Sequence[Any]:
        """Give `forward()`'s tensors a backward pass that recomputes `function(*tensors)` eagerly.

        `function` takes the tensors of the call (detached copies in the backward pass) and uses `weights`, the
        live ones, by itself; gradients reach both. No gradient is recorded while `forward` runs.
        """
        ...

    def static_path(self, function: Callable[..., Any], strategy: Any) -> Callable[..., Any]:
        """The framework's own compiled form of a function, through which gradients flow; `strategy` is its own."""
        ...

    def lacks_kernel(self, error: RuntimeError) -> bool:
        """Did eager code fail because the framework has no kernel for this element type on this device?"""
        ...

    def threads(self) -> int:
        """The width of the framework's own thread pool."""
        ...

    def tf32(self) -> TF32:
        """Which float32 arithmetic the eager method may round to TF32 on a GPU."""
        ...

    def duplicate(self, tensor: Any) -> Any:
        """A tensor of the same values, layout and need of a gradient, in memory of its own and without a history."""
        ...

    def modes(self) -> Callable[[], AbstractContextManager[Any]]:
        """This thread's modes (gradients, autocast), as a context for another thread; ``ambient`` is the same there."""
        ...

    def forkable(self) -> bool:
        """May a child forked from this process trace? Not where a device is in use that no child can use."""
        ...

    def enter_child(self) -> None:
        """In a forked child that traces: compute with one thread, since those of the parent's pools are not there."""
        ...

    def no_grad(self) -> Any:
        """A context manager in which no gradient is recorded."""
        ...

    def state(self, layer: Any) -> dict[str, Any]:
        """The live tensors of a layer's state dict, by its own names."""
        ...

    def switch(self, layer: Any, training: bool) -> None:
        """Put a layer and those below it into training or evaluation mode."""
        ...

    def program(self, tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> bytes:
        """Trace the call into a program of the framework's own that can be trained. Raises TraceError."""
        ...

    def runner(self, data: bytes) -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], Sequence[Any]]:
        """A function from weights, tensors and integers to the results of such a program, which carry gradients."""
        ...

    def is_parameter(self, tensor: Any) -> bool:
        """Is it a parameter of a layer, whether a training changes it or not?"""
        ...

    def layer_of(
        self, core: Any, tensors: Mapping[str, Any], state: Mapping[str, str], parameters: Collection[str],
        frozen: Collection[str],
    ) -> Any:  # fmt: skip
        """A layer that holds `tensors` under the names of `state` and has ``core.call`` answer its calls."""
        ...
