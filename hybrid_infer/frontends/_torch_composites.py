"""What torch does anew at each graph for all composite operators that there are, done once.

Before it decomposes a graph, torch tells each composite operator whether to stay whole: it looks all operators up once
for each of 30 namespaces, and gives 500 of them 22 kernels each, whatever the graph holds. For a layer that takes three
times as long as the rest of its capture.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Captures on this thread look all operators up once, and give each the kernels that it had the last time."""
    with contextlib.ExitStack() as kept:
        for owner, name, quicker in (
            (torch._export.utils, "_materialize_cpp_cia_ops", _once_on_this_thread),
            (torch._ops.OperatorBase, "py_impl", _at_once),
            (torch.export.exported_program, "_override_composite_implicit_decomp", _as_last_time),
        ):
            plain = vars(owner).get(name)
            if plain is not None:  # a release may do without it
                setattr(owner, name, quicker(plain))
                kept.callback(setattr, owner, name, plain)
        yield


def _once_on_this_thread(look_up: Callable[[], None]) -> Callable[[], None]:
    """No operator comes to be while a graph is decomposed, except on other threads: those see to theirs."""
    thread, done = threading.get_ident(), False

    def looked_up() -> None:
        nonlocal done
        if threading.get_ident() != thread:
            look_up()
        elif not done:
            look_up()
            done = True

    return looked_up


def _at_once(plain: Callable[[Any, Any], Callable[[Any], Any]]) -> Callable[[Any, Any], Callable[[Any], Any]]:
    """``OperatorBase.py_impl``, which defines a function with annotations of its own for each kernel it is given."""
    kind, python = torch._C.DispatchKey, torch._C.DispatchKey.Python

    def py_impl(operator: Any, key: Any) -> Callable[[Any], Any]:
        if type(key) is not kind or key is python:
            return plain(operator, key)
        return functools.partial(_take, plain, operator, key)

    return py_impl


def _take(plain: Any, operator: Any, key: Any, kernel: Any) -> Any:
    if operator.py_kernels.setdefault(key, kernel) is not kernel:
        return plain(operator, key)(kernel)  # which says that there is one
    operator._dispatch_cache.clear()
    return kernel


class _Given(NamedTuple):
    """What an operator was given to decompose it by, its kernels before and with it, and its rule for fake tensors."""

    by: Any
    before: dict[Any, Any]
    kernels: dict[Any, Any]
    rule: Any


_given: dict[Any, _Given] = {}  # captures take turns

#: All that torch's function names; one that names more may do more than what is noted here.
_KNOWN = frozenset((
    "CompositeImplicitAutograd", "DispatchKey", "_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE",
    "_BACKEND_KEYS_TO_OVERRIDE", "_C", "_deregister_op_impl", "_dispatch_cache", "_get_decomp_for_cia",
    "_is_op_registered_to_fake_rule", "add", "autograd_not_implemented", "clear", "copy", "functools", "items",
    "partial", "py_impl", "py_kernels", "register_op_impl", "set", "torch", "update",
))  # fmt: skip


def _as_last_time(plain: Any) -> Any:
    code = getattr(getattr(plain, "__wrapped__", None), "__code__", None)
    if code is None or not _KNOWN.issuperset(code.co_names):
        return plain
    from torch._subclasses.fake_impls import op_implementations_dict as rules

    @contextlib.contextmanager
    def override(operators: Mapping[Any, Any]) -> Iterator[None]:
        again: dict[Any, Any] = {}
        others: dict[Any, Any] = {}
        for operator, by in operators.items():
            last = _given.get(operator)
            same = last is not None and _alike(last.by, by) and last.before == operator.py_kernels
            (again if same and operator not in rules else others)[operator] = by
        before = {operator: dict(operator.py_kernels) for operator in others if operator not in rules}
        with plain(others):
            for operator, kernels in before.items():
                _given[operator] = _Given(others[operator], kernels, dict(operator.py_kernels), rules[operator])
            try:
                for operator in again:
                    _set(operator, _given[operator].kernels)
                    rules[operator] = _given[operator].rule
                yield
            finally:
                for operator in again:
                    _set(operator, _given[operator].before)
                    rules.pop(operator, None)

    return override


def _alike(one: Any, other: Any) -> bool:
    """Are two the same function, or made by the same line of code for the same operator?"""
    if one is other:
        return True
    if type(one) is not functools.partial or type(other) is not functools.partial:
        return False
    codes = [getattr(each.func, "__code__", None) for each in (one, other)]
    bound = one.args or other.args or any(getattr(each.func, "__closure__", None) for each in (one, other))
    return not bound and codes[0] is not None and codes[0] is codes[1] and one.keywords == other.keywords


def _set(operator: Any, kernels: dict[Any, Any]) -> None:
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
