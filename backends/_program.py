"""What the programs of all engines have in common: sessions, their own or shared, within one budget of threads.

An engine brings a subclass of `Session`, which computes; `Sessions` decides how many of them there are.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from time import perf_counter
from typing import Any, NoReturn, Protocol

from hybrid_infer import _fork_safe
from hybrid_infer._errors import ArgumentsRefused, CheckFailed, EngineError
from hybrid_infer._types import NOWHERE, EngineOptions, Graph
from hybrid_infer.backends import _complex, _cores, _fork, _threads


class Refused(Exception):
    """A session's own reason, in words for the user, not to run."""


class Unfit(Refused):
    """The same where it lies in the values or sizes of the arrays that it was given."""


class _NotSo(Refused):
    """A graph that is ``checked`` says that a check failed."""


#: Of a graph that is ``checked``, of some arguments.
FAILED = "a check of values that the method makes, or that its static model takes for granted, does not hold"

#: Characters of a reason; an engine's whole message is that of the error's cause.
_LONGEST = 200


def one_line(text: str) -> str:
    """The beginning of what an engine said, as one line that a reader takes in; empty if it said nothing."""
    line = " ".join(text.split()).strip(" :")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 4].rpartition(' ')[0]} ..."


class Session:
    """A loaded graph with the arrays that it reads in place and the lease on its threads.

    ``run`` takes the names of the outputs, arrays by the names of the inputs, and None; it gives the outputs in order.
    ``shared``: it serves many programs, whose weights are fed to it at each run. ``shapes``: of its inputs, by name;
    one of which not every size is known may be left out.
    """

    run: Callable[..., Sequence[Any]]
    shared = False
    closed = False

    @property
    def shapes(self) -> Mapping[str, Sequence[Any]]:
        raise NotImplementedError

    def hold(self, lease: _threads.Lease | None) -> None:
        """To be called by the subclass when all else is in place."""
        if lease is not None:
            weakref.finalize(self, lease.release).atexit = False
        _fork.protect(self)

    def inherit(self) -> object:
        self.run = _refuse_inherited
        return self.foreign()

    def foreign(self) -> object:
        """What must never be destroyed in a forked child."""
        raise NotImplementedError


def _refuse_inherited(*_: object) -> NoReturn:
    raise Refused("the program was loaded by the process that this one was forked from: load it anew here")


def _refuse_closed(*_: object) -> NoReturn:
    raise Refused("the program is closed")


class _Closed(Session):
    """Stands in for the session of a closed program."""

    closed = True

    def __init__(self) -> None:
        self.run = _refuse_closed


_CLOSED = _Closed()


class Described(Protocol):
    """What a program asks its engine."""

    name: str

    def wire(self, dtype: str) -> str: ...

    def reason(self, error: Exception) -> str:
        """The engine's message on one short line (see ``one_line``), without codes and places in its sources."""
        ...


class Program:
    """A session with the names under which arrays are given to it; see `hybrid_infer._types.Program`.

    ``weights``: those that are fed to a shared session at each run, by name; ``threads``: those of the framework.
    """

    def __init__(
        self,
        engine: Described,
        session: Session,
        names: Sequence[str | None],
        weights: dict[str, Any],
        graph: Graph,
        pacer: _cores.Pacer | None,
        threads: int,
    ) -> None:
        self.engine = engine.name
        self.input_dtypes = tuple(engine.wire(spec.dtype) for spec in graph.input_specs)
        self.output_dtypes = tuple(engine.wire(spec.dtype) for spec in graph.output_specs)
        self.shared = session.shared
        self.generation = _fork.generation()
        self._reason = engine.reason
        self._ranks = tuple(len(spec.shape) for spec in graph.input_specs)
        self._session = session
        self._names = tuple(name for name in names if name is not None)
        self._used = None if None not in names else tuple(name is not None for name in names)
        self._count = len(names)
        self._weights = weights
        self._outputs, self._checked = list(graph.outputs), graph.checked
        self._complex_results = [i for i, dtype in enumerate(self.output_dtypes) if dtype in _complex.PARTS]
        self._plain = not (self._checked or self._complex_results)  # are results given to the caller as they are?
        self._complex: list[int] | None = None  # which of the arrays of a run are: live weights tell at the first
        self._pacer, self._threads = pacer, threads

    def usable(self) -> bool:
        """False once closed, and in a process forked from the one that loaded the program."""
        return self.generation == _fork.generation() and not self._session.closed

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        # A local reference keeps the session and its weights alive if another thread closes the program meanwhile.
        session = self._session
        try:
            given = arrays if self._complex == [] else self._paired(arrays)
            if self._used is None:
                feeds = dict(zip(self._names, given, strict=True))
            else:
                feeds = dict(zip(self._names, compress(given, self._used), strict=True))
            if self._weights:
                feeds.update(self._weights)
            pacer = self._pacer
            if pacer is None:
                results = session.run(self._outputs, feeds, None)
                return results if self._plain else self._given(results)
            hand_over = pacer.hand_over
            try:
                if hand_over is not None:
                    hand_over.begin(self._threads)
                start = perf_counter()
                results = session.run(self._outputs, feeds, None)
                seconds = perf_counter() - start
            finally:
                if hand_over is not None:
                    # An interrupt may end the first: left as it is, the framework would go on with one thread.
                    try:
                        hand_over.end()
                    finally:
                        hand_over.end()
            if seconds > _cores.NOT_WORTH_IT or hand_over is not None:
                pacer.note(seconds)
            return results if self._plain else self._given(results)
        except Exception as error:
            if isinstance(error, _NotSo):
                raise CheckFailed(self.engine, FAILED) from error
            if isinstance(error, Unfit):
                raise ArgumentsRefused(self.engine, str(error)) from error
            if str(NOWHERE) in str(error):
                raise CheckFailed(self.engine, FAILED) from error
            raise EngineError(self.engine, self._explain(error, arrays)) from error

    def _paired(self, arrays: Sequence[Any]) -> list[Any]:
        if self._complex is None:
            self._complex = [i for i, array in enumerate(arrays) if array is not None and array.dtype.kind == "c"]
        found = list(arrays)
        for i in self._complex:
            found[i] = _complex.paired(found[i])
        return found

    def _given(self, results: Sequence[Any]) -> Sequence[Any]:
        """Results of a session as they are given to the caller. Raises Refused where a check failed."""
        if self._checked and not results[-1]:
            raise _NotSo
        if not self._complex_results:
            return results
        found = list(results)
        for i in self._complex_results:
            found[i] = _complex.joined(found[i])
        return found

    def _explain(self, error: Exception, arrays: Sequence[Any]) -> str:
        """What is wrong with the arrays, in the same words for every engine, or else what the engine says."""
        if isinstance(error, Refused):
            return str(error)
        if len(arrays) != self._count:
            return f"{len(arrays)} arrays given to a program that takes {self._count}"
        ours = len(self.input_dtypes)
        given = arrays[len(arrays) - ours :]
        used = (True,) * ours if self._used is None else self._used[len(arrays) - ours :]
        for i, (array, dtype, rank, needed) in enumerate(
            zip(given, self.input_dtypes, self._ranks, used, strict=True)
        ):
            if not needed:
                continue
            if array.dtype.name != dtype:
                return f"input {i} has the data type {array.dtype} where the program takes {dtype}"
            if array.ndim != rank:
                return f"input {i} has the shape {array.shape} where the program takes rank {rank}"
        return self._reason(error)

    def close(self) -> None:
        self._session = _CLOSED
        self._weights = {}


class Factory(Protocol):
    """Makes a session of an engine, which computes on `width` threads. It releases `lease` where it raises."""

    def __call__(
        self,
        model: tuple[bytes, ...],
        weights: Mapping[str, Any],
        options: EngineOptions,
        width: int,
        lease: _threads.Lease | None,
    ) -> Session: ...


class Sessions:
    """The sessions of one engine in this process.

    Parameters
    ----------
    make : the class of the sessions.
    threads : how many threads a session of a given width keeps for as long as it lives.
    """

    def __init__(self, make: Factory, threads: Callable[[int], int]) -> None:
        self._make, self._threads = make, threads
        self._building = _fork_safe.Lock()
        self._forget()
        _fork.in_child(self._forget)

    def _forget(self) -> None:
        self._shared: weakref.WeakValueDictionary[object, Session] = weakref.WeakValueDictionary()

    def own(self, model: tuple[bytes, ...], weights: Mapping[str, Any], options: EngineOptions) -> Session | None:
        """A session of its own, or None where the threads that it would add are more than the process may have.

        A quarter of the budget is left to shared sessions.
        """
        limit, width = _limit(options), _width(options)
        lease = _threads.BUDGET.take(self._threads(width), limit - limit // 4)
        return None if lease is None else self._make(model, weights, options, width, lease)

    def shared(self, model: tuple[bytes, ...], options: EngineOptions) -> Session:
        """The session that serves every program of this graph under these options; weights are among its inputs.

        It computes on the calling thread alone if the budget of threads is spent.
        """
        digests = tuple(hashlib.sha256(part).digest() for part in model)
        width = _width(options)
        key = (digests, width, options.optimise, options.handover, options.precision)
        with self._building:
            session = self._shared.get(key)
            if session is None:
                lease = _threads.BUDGET.take(self._threads(width), _limit(options))
                session = self._make(model, {}, options, 1 if lease is None else width, lease)
                session.shared = True
                self._shared[key] = session
            return session


def _width(options: EngineOptions) -> int:
    return max(1, options.threads)


def _limit(options: EngineOptions) -> int:
    """How many idle threads may be added to this process in all: ``extra["workers"]``, or what the machine bears."""
    workers = options.extra.get("workers")
    return _threads.default_limit() if workers is None else int(workers)


def load(
    engine: Described,
    sessions: Sessions,
    bound: tuple[bytes, ...],
    live: tuple[bytes, ...],
    graph: Graph,
    weights: Sequence[Any],
    options: EngineOptions,
    fitted: Callable[[str, Any], Any] = lambda _, array: array,
) -> Program:
    """A program from the models whose weights are to be bound and to be fed, in the form that `options` ask for.

    ``fitted(name, array)``: what the engine computes with for a weight, whether bound or fed; it may raise `Unfit`.
    """
    if len(weights) != len(graph.weights) and not (options.live and not weights):
        raise EngineError(engine.name, f"{len(weights)} weights given for a graph with {len(graph.weights)}")
    threads = options.threads
    pacer = _cores.Pacer(options.framework) if options.handover and threads > 1 else None
    if options.live:
        session = sessions.shared(live, options)
        return Program(engine, session, (*graph.weights, *graph.inputs), {}, graph, pacer, threads)
    arrays = _arrays(engine, graph, weights)
    try:
        arrays = {name: fitted(name, array) for name, array in arrays.items()}
    except Refused as refused:
        raise EngineError(engine.name, str(refused)) from refused
    own = sessions.own(bound, arrays, options) if arrays else None
    session = own or sessions.shared(live, options)
    fed = arrays if own is None else {}
    shapes = session.shapes
    for name, array in arrays.items():
        if (shape := tuple(shapes.get(name, array.shape))) != array.shape:
            found = f"the weight {name!r} is of shape {array.shape}"
            raise EngineError(engine.name, f"{found} where the graph takes {shape}")
    return Program(engine, session, graph.inputs, fed, graph, pacer, threads)


def _arrays(engine: Described, graph: Graph, weights: Sequence[Any]) -> dict[str, Any]:
    """The weights that the graph uses, by name, as arrays that the engine can read in place."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for name, weight in zip(graph.weights, weights, strict=True):
        if name is None:
            continue
        if weight is None:
            raise EngineError(engine.name, f"no array was given for the weight {name!r}")
        try:
            wire = engine.wire(weight.dtype.name)
        except EngineError as error:
            raise EngineError(engine.name, f"the weight {name!r} has the element type {weight.dtype}") from error
        # asarray, not ascontiguousarray: that one gives a 0-d array a dimension.
        array = np.asarray(weight, dtype=wire, order="C")
        arrays[name] = _complex.paired(array) if wire in _complex.PARTS else array
    return arrays
