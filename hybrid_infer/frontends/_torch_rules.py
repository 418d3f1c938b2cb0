"""The exporter's rules for the rewriting of a graph, each tried only where it can apply, with the very constants of it.

The rules for what changes nothing (`x + 0`, `x * 1`) take any constant for theirs that differs by no more than 1e-8, or
by 1e-5 of it: of `x / (x + 1e-8)`, the sum was lost.

The exporter tries 45 rules at each node, most of which are about another operator: of the 2.4 s that it took for the
graph of a GPT-2 with 12 layers, 1.4 s. One rule, for two slices that a split could replace, goes through the whole
graph at each node, whatever its operator: four layers of a Qwen3-Next, whose recurrence is a loop of Python, took 309 s
to capture, and 87 s without. That rule is left out.

Constants that a rule makes are called after the tensor that they are applied to: of two clamps of one tensor, the
second's bounds took the place of the first's, which the graph then lacked.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from hybrid_infer._own_thread import replaced


@contextlib.contextmanager
def where_they_apply() -> Iterator[None]:
    """Exports on this thread try a rule at nodes of the operator that it ends in, and none that ends in two."""
    try:
        from onnxscript.rewriter import RewriterContext, _basics, _matcher

        makes_constants = next(kind for kind in RewriterContext.__mro__ if "initializer" in vars(kind))
    except (ImportError, StopIteration):  # a release may do without them
        yield
        return
    numbers = itertools.count()
    no = _basics.MatchResult().fail("The pattern ends in another operator.")

    def match(plain: Any, matcher: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        ends = matcher.pattern.output_nodes
        operator = ends[0].op_identifier()  # None where it may be one of several
        if len(ends) > 1 or (operator is not None and operator[:2] != (node.domain, node.op_type)):
            return no
        return plain(matcher, model, graph, node, **options)

    def match_constant(plain: Any, matcher: Any, pattern: Any, value: Any) -> Any:
        if not plain(matcher, pattern, value):
            return False
        expected, found = pattern.value, value.const_value.numpy().tolist()
        same: bool = found == (list(expected) if isinstance(expected, Sequence) else expected)
        return same or matcher.fail(f"Constant value mismatch: expected {expected}, got {found}.")

    def initializer(plain: Any, context: Any, tensor: Any, name: str | None = None) -> Any:
        name = name or tensor.name
        return plain(context, tensor, name and f"{name}_{next(numbers)}")

    with (
        replaced(makes_constants, "initializer", initializer),
        replaced(_matcher.SimplePatternMatcher, "match", match),
        replaced(_matcher.SimplePatternMatcher, "_match_constant", match_constant),
    ):
        yield
