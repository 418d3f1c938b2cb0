"""What a failed or refused torch trace says to the user: the line, the construct, what usually helps."""

from __future__ import annotations

import re
from typing import Any

import torch

from hybrid_infer.frontends import _places

NO_FORM = re.compile(
    r"No ONNX function found for <(?:OpOverload\(op='\w+\._*|built-in function |function _*)(\w+)['> ]"
)
#: Of an object, which is another one in each process.
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")
_BARE = (AttributeError, IndexError, KeyError, AssertionError)
_HELD = re.compile(r"torch\.classes\.(\S+) \(of Python compilation unit.*__obj_flatten__")
_OF_FUNC = re.compile(r"'Tensor' object has no attribute 'constant'")
_UNKNOWN = re.compile(r"Operator '<built-in function (\w+)>' is not an allowed")
_BARE_OPERATOR = re.compile(r"\w+\._*(\w+)\.\w+")
_REFUSED_CALL = re.compile(r"\.(\w+)\(\) is not supported for tensor subclasses")


def explained(fault: BaseException) -> tuple[str, str]:
    """Reason and remedy of a failed trace, in words of the user's program."""
    text, place = str(fault), _places.of_error(fault, torch)
    where = f" ({place})" if place else ""
    if by_values(fault):
        if re.search(r"expression Eq\(u\d+, 1\)", text):  # what a tensor is, as a truth value
            return (
                f"a branch depends on the values of a tensor{where}",
                "Use torch.where, torch.cond or torch.while_loop there, or decorate a method inside that branch",
            )
        return (
            f"a size, or a branch on one, depends on the values of a tensor{where}",
            "Compute that size outside and decorate what follows it, or decorate a method inside that branch",
        )
    if "failed to unpack the object" in text and "FakeTensor" in text:  # of pack_padded_sequence()
        return (
            f"a size depends on the values of a tensor{where}",
            "Compute that size outside and decorate what follows it",
        )
    held = _HELD.search(text)
    if held:
        return (
            f"it uses an object of torch's that no trace can look into ({held[1]}), as quantised layers do{where}",
            "Decorate the part before or after it",
        )
    if "fake tensor in the exported program constant" in text or "view functorch tensor" in text:
        return (
            "it computes derivatives, or applies a transform of torch.func, which the tracer does not follow",
            "Leave that outside: decorate the part that only computes",
        )
    if text.startswith("Cannot access data pointer of Tensor"):
        return f"it asks where a tensor lies in memory (.data_ptr() or the like){where}", "Ask outside of the method"
    if "mix of the legacy and new APIs" in text and "cuDNN" in text:
        return (
            "torch.backends.cudnn.conv.fp32_precision and torch.backends.cudnn.rnn.fp32_precision differ, with which "
            "PyTorch's own tracer does not work",
            "Set both to the same",
        )
    if _OF_FUNC.search(text):
        return (
            f"it computes derivatives, or applies a transform of torch.func, which the tracer does not follow{where}",
            "Leave that outside: decorate the part that only computes",
        )
    if "should have been constant, but got" in text:
        return f"how often a size is repeated, or what is cut, depends on a size that varies{where}", ""
    unknown = _UNKNOWN.search(text)
    if unknown:
        return f"torch's tracer has no form of Python's operator.{unknown[1]} of a size or an integer that varies", ""
    bare = _BARE_OPERATOR.fullmatch(text)
    if bare:  # which is all that the tracer says, as of CTCLoss
        return f"torch's tracer has no form of its operator {bare[1]}{where}", "Decorate the part before or after it"
    refused = _REFUSED_CALL.search(text)
    if refused:
        name = refused[1]
        return (
            f"it calls .{name}() on a tensor{where}",
            "Compute with torch's own functions, or decorate the part before or after that call",
        )
    return first_line(fault), ""


def by_values(fault: BaseException) -> bool:
    """Did a trace fail since it has no values, which decide a size or a branch?"""
    kind = type(fault).__name__
    return "DataDependent" in kind or "Unbacked" in kind or "data-dependent" in str(fault)


def first_line(fault: BaseException) -> str:
    """The first line of the tracer's complaint, with the user's file and line where it names one."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    kind = type(fault).__name__
    first = _ADDRESS.sub("", lines[0]) if lines else f"it raises {kind} while it is traced"
    if type(fault) in _BARE and _places.by_framework(fault, torch):  # which say nothing of where they come from
        first = f"PyTorch's own tracer fails ({kind}: {first})" if lines else f"PyTorch's own tracer fails ({kind})"
    place = _places.of_error(fault, torch)
    return f"{first} ({place})" if place else first


def line_of(node: Any) -> str:
    """The line that called an operator of a traced program, in parentheses; empty if it is not known."""
    place = _places.of_stack(str(node.meta.get("stack_trace") or ""), torch)
    return f" ({place})" if place else ""


def called_at(program: Any, name: str) -> str:
    """The same of the first operator of this name."""
    for node in program.graph.nodes:
        if str(getattr(getattr(node.target, "_schema", None), "name", "")).rpartition("::")[2].lstrip("_") == name:
            return line_of(node)
    return ""


def writers_of(program: Any) -> dict[str, str]:
    """By the name of an input that is written to: the line that does so, in parentheses."""
    found: dict[str, str] = {}
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "call_function" and schema is not None and schema.is_mutable and node.args:
            source = node.args[0]
            while getattr(source, "op", "") == "call_function" and source.args:  # a view of the input
                source = source.args[0]
            found.setdefault(str(getattr(source, "name", "")), line_of(node))
    return found


def public(target: Any) -> str:
    """An operator by the name that programs call it by, as far as there is one."""
    name = str(target._schema.name).rpartition("::")[2]
    rooms = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.Tensor": torch.Tensor}
    for prefix, room in rooms.items():
        if hasattr(room, name):
            return f"{prefix}.{name}"
    return str(target)
