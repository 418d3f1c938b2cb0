"""The check, at every call, that the attributes which a capture read and the code that counted are what they were."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hybrid_infer.fingerprint import _functions
from hybrid_infer.fingerprint._fingerprint import ABSENT, Fingerprint
from hybrid_infer.fingerprint._framework_code import Named
from hybrid_infer.objects import _state
from hybrid_infer.state import _entries, _environment, _layer_hooks, _noting, _omegaconf
from hybrid_infer.state._attributes import DATA, Attributes, Read
from hybrid_infer.state._census import Census, Path, has_state
from hybrid_infer.state._roots import undecorated
from hybrid_infer.state._watch import Watch

#: What decorators and metaclasses note of the fields of a class: much, and nobody changes it in place.
_MADE_WITH_A_CLASS = frozenset(
    {"__dataclass_fields__", "__attrs_attrs__", "__attrs_props__", "__signature__", "__pydantic_fields__",
     "__pydantic_decorators__", "__pydantic_generic_metadata__"}
)  # fmt: skip


def arm(
    attributes: Attributes, reads: Sequence[Read], census: Census, watched: set[int], *,
    called: bool = False, forms: bool = False,
) -> Callable[[], bool]:  # fmt: skip
    """A check, cheap enough for every call, that all that was read is what it was then.

    It may report a change where there is none (an equal object put in place of another), never the opposite.
    `watched` holds ids of tensors that are watched elsewhere; with `forms`, types and shapes of others are here.
    `called`: may the method call any of the layers?
    """
    check = _from_now_on(attributes, reads, census, watched, called, forms)
    # Another thread may have changed something between the look-up of a version and now.
    described = [read for read in reads if read.kind != "opaque"]
    return check if attributes.match(described, census) is None else lambda: False


def _from_now_on(
    attributes: Attributes, reads: Sequence[Read], census: Census, watched: set[int], called: bool, forms: bool
) -> Callable[[], bool]:
    """The check for changes from now on."""
    frontend, same = attributes.frontend, functools.partial(_does_the_same, attributes)
    noted = {id(v) for path, v in census.objects.items() if path and attributes.notes(v) and not _omegaconf.part(v)}
    carried: dict[int, set[str]] = {}
    for carry in census.carries:
        if carry.entry:
            carried.setdefault(id(census.at(carry.path)), set()).add(carry.key)
    watch = Watch(_leaves(frontend), noted, same, attributes.values.named, carried)
    for read in reads:
        if read.path == _environment.PATH:
            _environment.watch(watch, read.name)
            continue
        value = census.at(read.path)
        if _entries.contains(value):
            _entries.watch(watch, value, read.name, inside=read.kind in DATA)
            continue
        if _omegaconf.settings(value):
            again = functools.partial(attributes.setting, value, read.name, Census(paths=census.paths))  # no live layer
            _omegaconf.keep(watch, value, read.name, again)
            continue
        state = vars(value)
        if read.kind == "group":
            group = state if read.name == "__dict__" else state[read.name]
            watch.order(group)
            for key, item in group.items():
                if id(item) not in watched:
                    watch.slot(group, key, item)
            continue
        box = attributes.box(value, read.name)
        if box is not None:
            held = box[read.name]
            if id(held) not in watched:
                watch.slot(box, read.name, held)
            if read.kind in DATA:
                watch.contents(held)
            continue
        places = [state]
        if isinstance(value, frontend.layer_type):
            places += [state[group] for group in frontend.groups if state.get(group) is not None]
        for place in places if read.kind == "missing" else places[:1]:
            watch.absent(place, read.name)
        for base in type(value).__mro__:
            if read.name in vars(base):
                watch.slot(watch.namespace(base), read.name, vars(base)[read.name])
                if read.kind == "code":
                    watch.holds(same(vars(base)[read.name]))
                if _state.is_slot(vars(base)[read.name]):
                    watch.member(value, vars(base)[read.name], kept=len(read.path) > 1)
                break
            if base is not object:
                watch.absent(watch.namespace(base), read.name)
    if forms:
        _keep_their_form(frontend, watch, reads, census, watched)
    paths = {read.path for read in reads}
    for read in reads:
        if read.kind == "object":
            paths.add((*read.path, read.name))
    paths |= {path for path in census.objects if len(path) == 1}  # their classes count, whatever was read of them
    for path in paths:
        if path in census.objects:
            _stays(attributes, watch, path, census.objects[path])
    for hooks in (found := attributes.hooks(census, reads, paths, called)):
        watch.hooks(hooks)
        for hook in _layer_hooks.recomputing(hooks):
            watch.contents(hook)
    if any(found) and (asleep := _layer_hooks.asleep(found)) is not None:
        watch.holds(asleep)
    return watch.check()


def _keep_their_form(frontend: Any, watch: Watch, reads: Iterable[Read], census: Census, watched: set[int]) -> None:
    """Watch the types, shapes and layouts of tensors that were met: the method may have asked for no more."""
    met = {(*read.path, read.name) for read in reads} | {read.path for read in reads if read.kind == "group"}
    describe, axes = frontend.describe, frontend.axes

    def form(tensor: Any) -> Any:
        try:
            return describe(tensor), axes(tensor)
        except (RuntimeError, NotImplementedError, ValueError):  # a sparse one has no axes in memory
            return describe(tensor)

    found = [
        slot.tensor for slot in census.slots if id(slot.tensor) not in watched
        and (len(slot.path) == 1 or any(slot.path[:end] in met for end in range(1, len(slot.path) + 1)))
    ]  # fmt: skip
    if found and (quick := frontend.forms(found)) is not None:
        watch.holds(quick)
    elif found:
        before = [*map(form, found)]
        watch.holds(lambda: [*map(form, found)] == before)


def _stays(attributes: Attributes, watch: Watch, path: Path, value: Any) -> None:
    """Watch what an object's attributes are looked up in: its class, its state, and a layer's groups."""
    state = vars(value) if has_state(value) else None
    groups = attributes.frontend.groups if isinstance(value, attributes.frontend.layer_type) else ()
    if len(path) == 1:  # not the instance itself, which this must not keep
        if state is not None:
            watch.instance(value, groups)
        return
    watch.kind(value)
    for base, name, function in _noting.functions(type(value)):
        watch.slot(watch.namespace(base), name, function)
        watch.holds(_does_the_same(attributes, function))
    if state is not None:
        watch.state(value, state)
        if _omegaconf.settings(value):
            watch.slot(state, "_parent", state["_parent"])
        for group in groups:
            if state.get(group):
                watch.slot(state, group, state[group])


def watch_code(
    attributes: Attributes, code: Fingerprint, named: Sequence[Named] = (), called: Sequence[Any] = ()
) -> Callable[[], bool]:
    """A cheap check that no global, class attribute, closure or function body which counted was changed.

    Nor anything in `named`, nor what objects that are `called`, or whose methods are, hold.
    """
    watch = Watch(_leaves(attributes.frontend))  # the functions among the values are in the fingerprint as well
    rows = [*code.globals, *((watch.namespace(owner), name, value) for owner, name, value in code.classes_read)]
    for mapping, name, value in rows:
        if value is ABSENT:
            watch.absent(mapping, name)
        else:
            watch.slot(mapping, name, value)
            if name not in _MADE_WITH_A_CLASS:
                watch.contents(value)
    for mapping, name in code.builtins:
        watch.absent(mapping, name)
    for row in named:
        watch.slot(row.space, row.name, row.value)
    for value in called:
        watch.contents(value)
    for space in (*code.classes, *code.modules):
        watch.names(space)
    for logger in code.loggers:
        watch.level(logger)
    for cell, value in code.cells:
        watch.cell(cell, value)
        watch.contents(value)
    watch.holds(_functions.unchanged(code.functions, {id(function) for function, _ in code.followed}))
    for _, _, defaults, named in code.functions:
        watch.contents(defaults)
        watch.contents(named)
    return watch.check()


def _does_the_same(attributes: Attributes, function: Any) -> Callable[[], bool]:
    return watch_code(attributes, attributes.code(undecorated(function)))


def _leaves(frontend: Any) -> tuple[Any, ...]:
    """Classes whose objects are watched by what they are alone."""
    return (frontend.tensor_type, frontend.layer_type, *frontend.constant_types)
