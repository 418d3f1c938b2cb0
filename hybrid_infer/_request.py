"""One call for which there is no route, and what a capture of it gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hybrid_infer._options import Options
from hybrid_infer._parameters import Parameters
from hybrid_infer._signature import Layout
from hybrid_infer._subject import Subject
from hybrid_infer._types import TF32, Graph, TensorSpec
from hybrid_infer._version import Call, Version
from hybrid_infer.state._ran_eagerly import NOTHING_ELSE, Eagerly


@dataclass(frozen=True)
class Errand:
    """What a miss is for.

    ``ahead``: no call waits for it, so no eager result is wanted and none is counted. ``forked``: another process
    traces, if one can. ``open``: (tensor, axis) pairs that are to vary from the start. ``tryout``: is asked before an
    engine builds here, and raises EngineError where it had better not.
    """

    ahead: bool = False
    forked: bool = False
    open: frozenset[tuple[int, int]] = frozenset()
    tryout: Callable[..., None] | None = None


@dataclass(frozen=True)
class Request:
    """One call that no route of its state answers."""

    frontend: Any
    options: Options
    function: Any
    name: str
    parameters: Parameters
    layout: Layout
    call: Call
    subject: Subject
    store: Any
    live: bool
    style: tuple[int, Collection[str]]  # how many arguments were positional, and the names of the others
    frozen: bool = False  # nothing may be captured or built (the stance "fail_on_compile")
    errand: Errand = Errand()
    any_size: bool = False  # dimensions that vary are to take 0 and 1 too (see ``Tracee``)
    sealed: bool = False  # the weights are the library's own, and nobody else writes to them
    writes: bool = False  # may tensors of the call be written to (see `_written`)?
    assuming: bool = False  # may branches on values be taken as the call takes them (see ``Tracee``)?
    given: Sequence[Any] = ()  # the objects of the call whose changes are among the results (see `_given`)
    chooses: bool = False  # the user has not said which engine: they are measured, the eager method among them
    eagerly: Eagerly = NOTHING_ELSE  # of a large program, what its eager calls were seen to run

    @property
    def tf32(self) -> TF32:
        """What the eager method may round to TF32: nothing, where its tensors are not on a GPU."""
        on_gpu = any(spec.device != "cpu" for spec in self.call.tensors)
        tf32: TF32 = self.frontend.tf32() if on_gpu else TF32()
        return tf32

    def in_the_background(self) -> Request:
        """The same for work that nobody waits for: it keeps neither the tensors of the call nor the instance alive."""
        return replace(self, layout=Layout(), subject=None, given=())  # type: ignore[arg-type]  # and looks at neither


@dataclass(frozen=True)
class Outcome:
    """Of a capture: a version, with its graph unless it has a ``reason``, what keeps it off the disk, and its time."""

    version: Version
    graph: Graph | None = None
    kept_off: tuple[str, ...] = ()
    seconds: float = 0.0


def specs(frontend: Any, layout: Layout) -> tuple[TensorSpec, ...]:
    """Element types, sizes and devices of the tensors of a call."""
    return tuple(TensorSpec(*frontend.describe(tensor)) for tensor in layout.tensors)


def described(layout: Layout, frontend: Any, ambient: Any, facts: Callable[[Any], Any] | None) -> Call:
    """A call under an ambient state; `facts` is what its code asks of each tensor."""
    return Call(
        layout.tree,
        specs(frontend, layout),
        tuple(layout.ints),
        (
            *(map(str, ambient) if isinstance(ambient, tuple) else (str(ambient),)),
            *(str(facts(tensor)) for tensor in layout.tensors if facts is not None),
        ),
        tuple(layout.places),
        tuple(layout.int_places),
    )


#: The dimensions and the integers that are to vary in a graph.
Wish = tuple[frozenset[tuple[int, int]], frozenset[int]]
