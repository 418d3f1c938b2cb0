"""``suggest()``: which layer or method is worth decorating, found by running the program and trying."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hybrid_infer import _api, _frontends, _progress, _stance
from hybrid_infer._choice import EAGER
from hybrid_infer._errors import HybridInferError
from hybrid_infer.checks._tryout import Tryouts
from hybrid_infer.reports import _profile, _suggested_view, _time_tree, _trial
from hybrid_infer.reports._profile import FORWARD, Node, Recording
from hybrid_infer.reports._time_tree import Part

_SECONDS = 1.0  # after which the layer is not run again to time its sublayers
_RUNS = 20
_SHARE = 0.05  # of the time: what takes less is not tried
_ITSELF = "(itself)"


@dataclass
class Row:
    """A layer or a method of one, or equal blocks that are offered as one.

    ``share``: of the program's time, with all that it calls. ``outcome``: the engine that would serve it, "eager" where
    none is faster, "refused", or "" where it was not tried, for the ``reason``. ``gain``: how many times as fast the
    whole program would be. ``line``: what to add to the program. ``place``: file and line of the method's definition,
    where it is the program's own. ``figures``: seconds of one call, by engine and for the eager method. ``steady``:
    False where the machine was too busy for these to mean much.
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
    place: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    steady: bool = True


@dataclass
class Suggestions:
    """Rows in the order of their worth; ``str()`` is a table. ``seconds``: of the program, eagerly.

    ``tree``: the time by layer and method, each inside of what calls it.
    """

    seconds: float
    rows: list[Row] = field(default_factory=list)
    tree: Part = field(default_factory=Part)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return asdict(self)

    def to_html(self) -> str:
        """One page of HTML that refers to nothing outside of itself: the table, and the tree of the time."""
        return _suggested_view.page(self)

    def save(self, path: str | Path) -> None:
        """Write the tree of the time as a picture: ``.html``, or ``.png``, which needs matplotlib.

        Raises
        ------
        ValueError
            the name ends in something else, or its folder is not there. HybridInferError: matplotlib is not installed.
        """
        path = Path(path)
        check_output(path)
        if path.suffix == ".html":
            path.write_text(self.to_html(), encoding="utf-8")
        else:
            from hybrid_infer.reports import _time_tree_png

            _time_tree_png.write(self.tree, self.seconds, path)

    def __str__(self) -> str:
        return _suggested_view.text(self)

    __repr__ = __str__


def check_output(path: Path) -> None:
    """Raises ValueError or HybridInferError where `Suggestions.save` would for this path."""
    import importlib.util

    if path.suffix not in (".html", ".png"):
        raise ValueError(f"{path}: a picture of the time is written to a name that ends in .html or .png")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise HybridInferError("a PNG is drawn by matplotlib, which is not installed: pip install matplotlib, or .html")


def suggest(layer: Any, *inputs: Any, time_limit: float = 120.0, **kwargs: Any) -> Suggestions:
    """Which sublayers and methods of a layer take the time, whether they can be served, and what that would gain.

    The layer is called with `inputs` up to twenty times, without gradients and eagerly, and each sublayer, and each
    method of the program's own classes, is timed. Those that take a twentieth of the time or more are captured and
    measured on the arguments that they were given, the largest first, until the time is up; what is inside one that is
    served is not tried. Equal blocks are one row. The layer is left as it was; static models stay in the cache, where
    the decorated program finds them. ``hybrid-infer suggest script.py`` does so for a whole program.

    Parameters
    ----------
    layer : a ``torch.nn.Module`` or ``paddle.nn.Layer``, in the mode in which it is to serve: call ``eval()`` first.
    inputs, kwargs : the arguments of a call.
    time_limit : seconds for trying; one that takes longer is given up, and so are those after it.

    Raises
    ------
    TypeError
        `layer` is no layer, or takes inputs and none were given. Whatever the layer raises.
    """
    frontend = _frontends.of(layer)
    if frontend is None or not hasattr(layer, "forward"):
        raise TypeError(
            f"suggest() was given an object of class {type(layer).__name__}; it takes a torch.nn.Module or a "
            "paddle.nn.Layer"
        )
    recording, runs = Recording(), 0
    with frontend.no_grad(), _stance.stance("eager"):
        _first_call(layer, inputs, kwargs)  # what it sets up is not counted
        with recording.on(map(type, _profile.layers(layer))):
            while not runs or (runs < _RUNS and recording.seconds < _SECONDS):
                layer(*inputs, **kwargs)
                runs += 1
    return of_recording(recording, time_limit, _Names({"model": layer}, alone=True), runs)


def _first_call(layer: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises what the layer raises, or a TypeError that says so where it takes inputs and was given none."""
    try:
        layer(*inputs, **kwargs)
    except TypeError:
        if inputs or kwargs:
            raise
        try:
            inspect.signature(layer.forward).bind()
        except ValueError:  # it has none
            pass
        except TypeError as fault:
            raise TypeError(
                f"suggest() runs the layer and was given no inputs for it ({fault}): pass those of a call, as in "
                "suggest(model, x)"
            ) from None
        raise


def of_program(recording: Recording, time_limit: float) -> Suggestions:
    """What the recording of a program suggests, whose layers are called as the program calls them."""
    return of_recording(recording, time_limit, _Names(recording.holders, alone=False))


def of_recording(recording: Recording, time_limit: float, names: _Names, runs: int = 1) -> Suggestions:
    """What a recording of several equal runs suggests."""
    groups: dict[tuple[str, str], tuple[Row, list[Node]]] = {}
    total = max(recording.seconds, 1e-9)

    def gather(node: Node, above: frozenset[tuple[int, str]]) -> None:
        for key, child in node.children.items():
            label = names.label(child)
            row, nodes = groups.setdefault((label, type(child.owner).__name__), (_row(child, label), []))
            if key not in above:  # of a method that calls itself, the outer call counts
                row.seconds += child.seconds / runs
            row.calls += child.calls
            if not any(each.owner is child.owner for each in nodes):
                nodes.append(child)
            gather(child, above | {key})

    gather(recording.top, frozenset())
    found = list(groups.values())
    for row, nodes in found:
        row.count, row.calls, row.share = len(nodes), row.calls // runs, min(1.0, row.seconds * runs / total)
    found.sort(key=lambda each: (-round(each[0].share, 3), each[0].where.count("."), each[0].where != _ITSELF))
    _try_all(found, names, time_limit)
    outcomes = {(row.where, row.kind): row.outcome for row, _ in found}
    tree = _time_tree.build(recording, names.label, outcomes, runs)
    found.sort(key=lambda each: (-(each[0].gain or 0.0), -each[0].share))
    return Suggestions(total / runs, [row for row, _ in found if row.share >= _SHARE], tree)


def _row(node: Node, label: str) -> Row:
    return Row(label, type(node.owner).__name__, 0, 0, 0.0, 0.0)


class _Names:
    """What layers are called in the program."""

    def __init__(self, holders: dict[str, Any], *, alone: bool) -> None:
        self.places: dict[int, tuple[str, str]] = {}
        self.alone = alone
        for name, layer in holders.items():
            for number, path in _profile.paths(layer).items():
                known = self.places.get(number)
                if known is None or path.count(".") < known[1].count("."):  # of several holders the nearest
                    self.places[number] = name, path

    def path(self, node: Node) -> tuple[str, str]:
        """The variable that holds a layer, and the layer's path inside of that one."""
        return self.places.get(id(node.owner), (f"<{type(node.owner).__name__}>", ""))

    def label(self, node: Node) -> str:
        holder, path = self.path(node)
        place = re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)
        if not self.alone:
            place = f"{holder}.{place}".rstrip(".")
        if node.name == FORWARD:
            return place or _ITSELF
        return f"{place}.{node.name}()" if place else f"{node.name}()"


def _try_all(found: list[tuple[Row, list[Node]]], names: _Names, limit: float) -> None:
    tryouts = Tryouts()
    try:
        _try_each(found, names, limit, tryouts)
    finally:
        tryouts.close()


def _try_each(found: list[tuple[Row, list[Node]]], names: _Names, limit: float, tryouts: Tryouts) -> None:
    end = time.monotonic() + limit
    served: set[int] = set()
    for row, nodes in found:
        node = nodes[0]
        if row.share < _SHARE:
            continue
        if all(id(each) in served for each in nodes):
            row.reason = "inside of what is served above"
        elif _api.is_inference_mode(getattr(node.owner, node.name, None)):
            row.reason = "decorated already"
            _mark(nodes, served)
        elif time.monotonic() >= end:
            row.reason = "the time was up"
        elif node.modes is None:
            row.outcome, row.reason = _trial.REFUSED, "its framework is not known"
        else:
            with _progress.working(f"trying {row.where}"):
                tried = _trial.attempt(node, end - time.monotonic(), tryouts)
            row.outcome, row.reason, row.figures = tried.outcome, tried.reason, dict(tried.seconds)
            row.steady = tried.steady
            row.gain = _gain(row)
            if tried.late:
                end = 0.0
            if row.outcome not in (_trial.REFUSED, EAGER):  # else something inside may gain all the same
                _mark(nodes, served)
            if row.outcome != _trial.REFUSED:
                row.place = _definition(node)
                row.line = _line(node, row, names)


def _mark(nodes: list[Node], served: set[int]) -> None:
    for node in nodes:
        served.add(id(node))
        _mark(list(node.children.values()), served)


def _gain(row: Row) -> float | None:
    eager = row.figures.get(EAGER)
    if not eager or row.outcome not in row.figures:
        return None
    return 1.0 / max(1e-9, 1.0 - row.share * (1.0 - row.figures[row.outcome] / eager))


def _definition(node: Node) -> str:
    """File and line of a method of the program's own; empty for that of a library."""
    function: Callable[..., Any] | None = inspect.unwrap(getattr(type(node.owner), node.name, None) or _nothing)
    code = getattr(function, "__code__", None)
    if code is None or function is _nothing or "site-packages" in code.co_filename:
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"


def _nothing() -> None:
    """Stands for a method that a class does not have."""


def _line(node: Node, row: Row, names: _Names) -> str:
    holder, path = names.path(node)
    if node.name != FORWARD:
        if row.place:
            return f"@inference() above `def {node.name}` of {row.kind}"
        place = _code(holder, path, node.name)
        return f"{place} = inference({place})"
    place = _code(holder, path)
    if not path and place.isidentifier():
        return f"{place} = inference({place})"
    if holder.startswith("<"):
        return f"@inference() above `def forward` of {row.kind}" if row.place else f"inference() around each {row.kind}"
    if row.count > 1:
        parts = row.where.split(".")
        if parts[-1] == "*" and parts.count("*") == 1:
            return f"for block in {_code(holder, path.rpartition('.')[0])}: inference(block)"
        return f"inference({place}), and so on for {row.where}"
    if holder.startswith("self.") and row.place:  # which is not in the class whose `self` that is
        return f"@inference() above `def forward` of {row.kind}"
    return f"inference({place})"


def _code(*parts: str) -> str:
    """What stands at a path of names and numbers, as a program says it: ``model.blocks[0].attention``."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(filter(None, parts)))
