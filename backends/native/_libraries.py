"""Which libraries compute steps on a GPU, where they are installed; our own kernels do where they are not."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer._errors import PassingFault, of_the_moment
from hybrid_infer._types import TF32
from hybrid_infer.backends import _fork
from hybrid_infer.backends.native import _cublaslt, _cudnn, _kernels, _size
from hybrid_infer.backends.native._device import Device
from hybrid_infer.backends.native._plan import NAME, Plan, Step
from hybrid_infer.backends.native._schedule import Offer, Offered
from hybrid_infer.backends.native._shelf import Shelf
from hybrid_infer.backends.native._size import Atom, Dim
from hybrid_infer.backends.native._window import windows

_log = logging.getLogger("hybrid_infer")

#: Answers of a library that are kept.
_ANSWERS = 256

#: What stands for a size that only a call knows.
_SAMPLE = 16

_opening = _fork_safe.Lock()
_opened: dict[int, list[tuple[str, Any, Any]]] = {}
_offers: dict[tuple[int, TF32], tuple[Offer, ...]] = {}


def offers(index: int, tf32: TF32) -> tuple[Offer, ...]:
    """What the libraries offer on the GPU of that number, which is current; opened once, and never closed.

    `tf32`: which arithmetic of float32 they may round.
    """
    with _opening:
        if index not in _opened:
            _opened[index] = _open()
        if (index, tf32) not in _offers:
            _offers[index, tf32] = tuple(
                _Remembered(library.OPS, functools.partial(opened.offer, tf32=tf32), name)
                for name, library, opened in _opened[index]
            )
        return _offers[index, tf32]


def products(index: int) -> _cublaslt.Products | None:
    """What computes products on the GPU of that number, once its `offers` were asked for; None where none does."""
    found: _cublaslt.Products | None = _of(index, _cublaslt)
    return found


def graphs(index: int) -> _cudnn.Graphs | None:
    """The same of what computes attention and convolutions."""
    found: _cudnn.Graphs | None = _of(index, _cudnn)
    return found


def _of(index: int, library: Any) -> Any:
    """What was opened of a library for the GPU of that number; None where nothing was."""
    with _opening:
        return next((opened for _, kind, opened in _opened.get(index, ()) if kind is library), None)


def measured(opened: _cublaslt.Products, device: Device, index: int) -> str:
    """For what the fastest algorithms are chosen: the library's release and the GPU. Raises DriverError."""
    gpu, count = device.gpu(index), device.properties(index).multiprocessors
    return f"cuBLASLt {opened.release()}, {gpu}, {count} multiprocessors"


def keep_plans(device: Device, index: int, shelf: Shelf | None) -> None:
    """Have cuDNN's plans back from `shelf`, and keep new ones there (see `flush_plans`); nothing where it is not open.

    Raises DriverError.
    """
    opened = graphs(index)
    if opened is not None and shelf is not None:
        count = device.properties(index).multiprocessors
        opened.keep(shelf, f"{device.gpu(index)}, {count} multiprocessors, a driver of CUDA {device.cuda()}")


def flush_plans(index: int) -> None:
    """Write the plans that were built since."""
    opened = graphs(index)
    if opened is not None:
        opened.flush()


def check_algorithms(plan: Plan, device: Device, index: int) -> None:
    """Forget the algorithms of a plan where they were chosen for something else than what is here.

    Raises DriverError.
    """
    if not plan.algorithms or (opened := products(index)) is None:
        return
    here = measured(opened, device, index)
    if here != plan.measured:
        text = "%s: the algorithms of a plan were the fastest for %s, and this is %s: the library chooses"
        _log.info(text, NAME, plan.measured, here)
        plan.algorithms = {}


def _open() -> list[tuple[str, Any, Any]]:
    """Those that start, each behind its name and module; what does not is said once, with the reason."""
    found: list[tuple[str, Any, Any]] = []
    for library, name, work in (
        (_cublaslt, "cuBLASLt", "products of matrices"), (_cudnn, "cuDNN", "attention and convolutions"),
    ):  # fmt: skip
        if reason := library.missing():
            _log.info("%s: kernels of its own compute %s: %s", NAME, work, reason)
            continue
        try:
            opened: Any = _cublaslt.Products() if library is _cublaslt else _cudnn.Graphs()
        except Exception as error:  # of the binding: the library is there, and does not start
            _log.warning("%s: %s does not start, and kernels of its own take its place: %s", NAME, name, error)
            continue
        found.append((name, library, opened))
    return found


class _Remembered:
    """A library that is asked once: by a plan's build for its run, and for all equal steps of a model.

    Its faults cost the library, and not the model: another release may answer otherwise. One of the moment, such as
    memory that it does not get, costs this answer alone.
    """

    def __init__(self, ops: Collection[str], offer: Offer, name: str) -> None:
        self._ops, self._offer, self._name = ops, offer, name
        self._lock = _fork_safe.Lock()
        self._found: OrderedDict[Any, Offered | None] = OrderedDict()

    def __call__(self, plan: Plan, step: Step, symbols: Mapping[Atom, int]) -> Offered | None:
        """See `hybrid_infer.backends.native._schedule.Offer`."""
        if step.op not in self._ops:
            return None
        key = _key(plan, step, symbols)
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        made: Offered | None = None
        try:
            made = self._offer(plan, step, symbols)
        except Exception as error:
            what = type(error).__name__
            _log.warning("%s: %s computes no %s: %s: %s", NAME, self._name, step.op, what, error)
            if of_the_moment(str(error)):
                return None
        with self._lock:
            self._found[key] = made
            if len(self._found) > _ANSWERS:
                self._found.popitem(last=False)
        return made

    def settled(self, plan: Plan, step: Step, symbols: Mapping[Atom, int]) -> bool:
        """Is the answer that it gave one for good?"""
        with self._lock:
            return step.op not in self._ops or _key(plan, step, symbols) in self._found


def settled(offers: Iterable[Offer], plan: Plan, step: Step, symbols: Mapping[Atom, int]) -> bool:
    """Is what they have just answered about a step for good? A refusal for a cause of the moment is not."""
    return all(not isinstance(each, _Remembered) or each.settled(plan, step, symbols) for each in offers)


def _key(plan: Plan, step: Step, symbols: Mapping[Atom, int]) -> tuple[Any, ...]:
    name = _kernels.name_of(plan, step)
    return name, _sizes(plan, step, symbols), plan.algorithms.get(name)


def _sizes(plan: Plan, step: Step, symbols: Mapping[Atom, int]) -> tuple[tuple[int, ...] | None, ...]:
    return tuple(None if s is None else tuple(_size.evaluate(n, symbols) for n in s) for s in _dims(plan, step))


def _dims(plan: Plan, step: Step) -> list[tuple[Dim, ...] | None]:
    """Shapes of what a step reads and writes, and the windows in it: one may be cut to a length that no shape tells."""
    shapes = [plan.values[name].shape if name else None for name in (*step.inputs, *step.outputs)]
    return [*shapes, *(None if each is None else (*each.sizes, *each.strides, each.start) for each in windows(step))]


def open_sizes(plan: Plan, step: Step) -> set[Atom]:
    """What a library is asked about a step depends on these of a call."""
    return {atom for sizes in _dims(plan, step) for size in sizes or () for atom in _size.atoms(size)}


def taken(plan: Plan, offers: Sequence[Offer], only: Collection[str] | None = None) -> set[str]:
    """The names of kernels, all or of `only`, in whose place a library computes.

    Where sizes are open, it is asked about a sample.
    """
    found: dict[str, bool] = {}
    for step in plan.steps:
        if step.op not in (*_cublaslt.OPS, *_cudnn.OPS) or (name := _kernels.name_of(plan, step)) in found:
            continue
        if only is not None and name not in only:
            continue
        shapes = [plan.values[each].shape or () for each in (*step.inputs, *step.outputs) if each]
        symbols = dict.fromkeys(open_sizes(plan, step), _SAMPLE)
        whole = all(_size.evaluate(size, symbols) > 0 for shape in shapes for size in shape)
        found[name] = whole and any(offer(plan, step, symbols) is not None for offer in offers)
    return {name for name, computed in found.items() if computed}


def lacks_epilogue(plan: Plan, offers: Sequence[Offer], index: int) -> str:
    """Why a plan is to be made anew: cuDNN does not compute any more what it was chosen for. Empty where it does.

    Where cuDNN is not at all, a kernel of our own computes a convolution, with what stands behind it or without. Raises
    PassingFault where it does not at the moment: the plan is as good as ever.
    """
    if graphs(index) is None:
        return ""
    for step in plan.steps:
        if step.op == "Conv" and "epilogue" in step.attributes and all(each(plan, step, {}) is None for each in offers):
            why = "cuDNN does not compute a convolution with what stands behind it, as the plan has it"
            if not settled(offers, plan, step, {}):
                raise PassingFault(NAME, f"{why}, for want of memory at the moment")
            return why
    return ""


def heeds_tf32(plan: Plan) -> bool:
    """Has a plan steps of float32 that a library may round, where it is allowed to?"""
    ops = (*_cublaslt.OPS, "Conv", "ConvTranspose")
    return any(step.op in ops and plan.values[step.outputs[0]].dtype == "float32" for step in plan.steps)


def _forget() -> None:
    for each in (*_opened.values(), *_offers.values()):  # what they hold is the parent's to destroy
        _fork.keep(each)
    _opened.clear()
    _offers.clear()


_fork.in_child(_forget)
