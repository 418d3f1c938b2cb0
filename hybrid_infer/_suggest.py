"""``suggest()``: which sublayer is worth decorating, found by running the program and trying."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from hybrid_infer import _api, _census, _explain, _method, _options
from hybrid_infer._choice import EAGER
from hybrid_infer._method import Bound, HotMethod

_SECONDS = 1.0  # after which the layer is not run again to time its sublayers
_RUNS = 20
_SHARE = 0.05  # of the time: what takes less is not tried


@dataclass
class Row:
    """A layer, or equal blocks that are offered as one.

    ``share``: of the program's time, with all that it calls. ``outcome``: the engine that would serve it, "eager" where
    none is faster, "refused", or "" where it was not tried, for the ``reason``. ``gain``: how many times as fast the
    whole program would be. ``line``: what to add to the program.
    """

    where: str
    kind: str
    count: int
    calls: int
    seconds: float
    share: float
    outcome: str = ""
    reason: str = ""
    gain: float | None = None
    line: str = ""


@dataclass
class Suggestions:
    """Rows in the order of their worth; ``str()`` is a table. ``seconds``: of the program, eagerly."""

    seconds: float
    rows: list[Row] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [("WHERE", "CLASS", "CALLS", "SHARE", "OUTCOME", "GAIN"), *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(c.ljust(width) for c, width in zip(line, widths, strict=True)).rstrip() for line in lines]
        text += [f"{row.where}: {row.reason}" for row in self.rows if row.reason and row.outcome == "refused"]
        best = [f"    {row.line}" for row in self.rows if row.line and (row.gain or 0) > 1]
        text += ["", *(["Add:", *best] if best else ["Nothing that was tried gains anything."])]
        return "\n".join(text)

    __repr__ = __str__


def _cells(row: Row) -> tuple[str, ...]:
    gain = "-" if row.gain is None else f"{row.gain:.2f}x"
    return row.where, row.kind, str(row.calls), f"{row.share:.0%}", row.outcome or "not tried", gain


@dataclass
class _Timed:
    calls: int = 0
    seconds: float = 0.0
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None


def suggest(layer: Any, *inputs: Any, time_limit: float = 120.0, **kwargs: Any) -> Suggestions:
    """Which sublayers of a layer take the time, whether they can be served, and what the whole program would gain.

    The layer is called with `inputs` up to twenty times, without gradients, and each sublayer is timed. Those that take
    a twentieth of the time or more are captured and measured on the arguments that they were given, the largest first,
    until the time is up; what is inside one that is served is not tried. Equal blocks are one row. The layer is left as
    it was; static models stay in the cache, where the decorated program finds them.

    Parameters
    ----------
    layer : a ``torch.nn.Module`` or ``paddle.nn.Layer``, in the mode in which it is to serve: call ``eval()`` first.
    inputs, kwargs : the arguments of a call.
    time_limit : seconds for trying; one that takes longer is given up, and so are those after it.

    Raises
    ------
    TypeError
        `layer` is no layer. Whatever the layer raises.
    """
    frontend = _method.frontend_of(layer)
    if frontend is None or not hasattr(layer, "forward"):
        raise TypeError(
            f"suggest() was given a {type(layer).__name__}; it takes a torch.nn.Module or a paddle.nn.Layer"
        )
    layers = {path[1:]: each for path, each in _census.take({"layer": layer}, frontend).layers}
    with frontend.no_grad():
        layer(*inputs, **kwargs)  # what the first call sets up is not counted
        timed = {path: _Timed() for path in layers}
        runs, total = 0, 0.0
        with _timing(layers, timed):
            while not runs or (runs < _RUNS and total < _SECONDS):
                start = time.perf_counter()
                layer(*inputs, **kwargs)
                total += time.perf_counter() - start
                runs += 1
    groups: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for path, each in layers.items():
        if timed[path].calls:
            where = re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", ".".join(map(str, path)))
            groups.setdefault((where, type(each).__name__), []).append(path)
    found = []
    for (where, kind), paths in groups.items():
        seconds = sum(timed[path].seconds for path in paths)
        calls = sum(timed[path].calls for path in paths) // runs
        found.append(
            (Row(where or "(itself)", kind, len(paths), calls, seconds / runs, min(1.0, seconds / total)), paths)
        )
    found.sort(key=lambda each: (-each[0].share, len(each[1][0])))
    with frontend.no_grad():
        _try_all(frontend, layers, timed, found, time_limit)
    found.sort(key=lambda each: (-(each[0].gain or 0.0), -each[0].share))
    return Suggestions(total / runs, [row for row, _ in found if row.share >= _SHARE])


@contextmanager
def _timing(layers: dict[Any, Any], timed: dict[Any, _Timed]) -> Iterator[None]:
    """Each layer's ``forward`` replaced, in the instance, by one that is timed."""
    replaced = []
    try:
        for path, layer in layers.items():
            own = vars(layer).get("forward")
            layer.forward = _clock(layer.forward, timed[path])
            replaced.append((layer, own))
        yield
    finally:
        for layer, own in replaced:
            if own is None:
                del layer.forward
            else:
                layer.forward = own


def _clock(function: Callable[..., Any], to: _Timed) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        if to.arguments is None:
            to.arguments = args, kwargs
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            to.seconds += time.perf_counter() - start
            to.calls += 1

    return forward


def _try_all(frontend: Any, layers: Any, timed: Any, found: list[tuple[Row, Any]], limit: float) -> None:
    end = time.monotonic() + limit
    served: list[Any] = []
    for row, paths in found:
        path = paths[0]
        if row.share < _SHARE:
            continue
        if any(path[: len(each)] == each for each in served):
            row.reason = "inside of what is served above"
            continue
        layer = layers[path]
        if _api.is_inference_mode(layer.forward):
            row.reason = "decorated already"
            served += paths
            continue
        if time.monotonic() >= end:
            row.reason = "the time was up"
            continue
        args, kwargs = timed[path].arguments
        function = getattr(layer.forward, "__func__", None)
        if function is None:
            row.outcome, row.reason = "refused", "its forward is no method; decorate what it calls"
            continue
        method = HotMethod(function, _options.Options(), has_owner=True)
        bound = Bound(method, layer)
        call = threading.Thread(target=_call, args=(frontend.modes(), bound, args, kwargs, row), daemon=True)
        call.start()
        call.join(max(0.0, end - time.monotonic()))
        if call.is_alive():
            row.outcome, row.reason, end = "refused", f"it was not captured within {limit:.0f} s", 0.0
            continue
        if row.outcome not in ("", "refused"):
            served += paths
            row.line = _line(path, row)
        method.release()


def _call(modes: Any, bound: Bound, args: Any, kwargs: Any, row: Row) -> None:
    try:
        with modes():
            bound(*args, **kwargs)
    except Exception as fault:  # of the layer, called by itself
        row.outcome, row.reason = "refused", f"{type(fault).__name__}: {fault}"
        return
    (method,) = _explain.explain(bound).to_dict()["methods"]
    refused = [each for each in method["refusals"] if each["refused"]]
    choices = [choice for version in method["versions"] for choice in version["choices"]]
    if refused or not method["versions"]:
        first = refused[0] if refused else {"reason": "nothing was captured", "remedy": ""}
        row.outcome, row.reason = "refused", f"{first['reason']}. {first['remedy']}".rstrip(". ")
        return
    row.outcome = ", ".join(method["versions"][0]["served_by"]) or EAGER
    if choices:
        seconds = choices[-1]["seconds"]
        row.outcome = choices[-1]["engine"]
        left = seconds[row.outcome] / seconds[EAGER] if seconds.get(EAGER) else 1.0
        row.gain = 1.0 / max(1e-9, 1.0 - row.share * (1.0 - left))


def _line(path: tuple[Any, ...], row: Row) -> str:
    place = ".".join(["model", *map(str, path)])
    if not path:
        return "model = inference(model)"
    if row.count > 1:
        parts = row.where.split(".")
        inner = [str(each) for each in path]
        if parts[-1] == "*" and parts.count("*") == 1:
            return f"for block in {'.'.join(['model', *inner[:-1]])}: inference(block)"
        return f"inference({place}), and so on for {row.where}"
    return f"inference({place})"
