"""An explanation as text for a terminal, and as a page of HTML; both show the same rows."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hybrid_infer import _differences
from hybrid_infer._choice import by_time

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #1c2430 }
h2 { font-size: 1.15em; margin: 1.6em 0 .3em } h3 { font-size: 1em; margin: 1em 0 .2em }
table { border-collapse: collapse } td { padding: .1em 1.2em .1em 0; vertical-align: top }
td:first-child { color: #5c6b80; white-space: nowrap } code { font-size: .95em }
@media (prefers-color-scheme: dark) { body { background: #14181f; color: #dde3ec } td:first-child { color: #94a3b8 } }
"""


_MOST = 4  # things in which static models differ that are told


class Section(NamedTuple):
    """A heading at a depth (0: a method, 1: a static model), with labelled values under it."""

    depth: int
    title: str
    rows: list[tuple[str, str]]


def text(data: Mapping[str, Any]) -> str:
    """Aligned columns under headings."""
    lines: list[str] = []
    for section in _sections(data):
        indent = "  " * section.depth
        if lines and not section.depth:
            lines.append("")
        lines.append(f"{indent}{section.title}")
        width = max((len(label) for label, _ in section.rows), default=0)
        lines += [f"{indent}  {label:<{width}}  {value}".rstrip() for label, value in section.rows]
    return "\n".join(lines)


def body(data: Mapping[str, Any]) -> str:
    """Headings and tables, without a page around them."""
    parts = []
    for section in _sections(data):
        level = 2 + section.depth
        parts.append(f"<h{level}>{html.escape(section.title)}</h{level}>")
        cells = "".join(
            f"<tr><td>{html.escape(label)}</td><td><code>{html.escape(value)}</code></td></tr>\n"
            for label, value in section.rows
        )
        parts.append(f"<table>\n{cells}</table>")
    return "\n".join(parts)


def page(data: Mapping[str, Any]) -> str:
    """A page that refers to nothing outside of itself."""
    title = html.escape(f"hybrid_infer: {data['target']}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{html.escape(data['target'])}</h1>\n{body(data)}\n</body>\n"
        "</html>\n"
    )


def _sections(data: Mapping[str, Any]) -> Iterator[Section]:
    for method in data["methods"]:
        yield Section(0, _title(method), list(_of_method(method)))
        for n, version in enumerate(method["versions"], 1):
            came = "captured by this process" if version["origin"] == "captured" else "from disk"
            key = f", {version['key'][:12]}" if version["key"] else ", kept in memory alone"
            yield Section(1, f"static model {n}: {came}{key}", list(_of_version(version)))


def _title(method: Mapping[str, Any]) -> str:
    where = ", ".join(method["where"])
    count = method["instances"]
    if count > 1:
        where = f"{where + ': ' if where else ''}{count} instances"
    return f"{method['method']}{f' ({where})' if where else ''}"


def _of_method(method: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    calls = method["calls"]
    if method["compiled_by"]:
        yield "compiled", f"by {method['compiled_by']}, which goes through the decorator: no engine answers its calls"
    if not method["called"]:
        yield "calls", "none yet"
    else:
        yield (
            "calls",
            (
                f"{calls['hits']} by an engine, {calls['eager_calls']} eagerly; {calls['captures']} captured, "
                f"{calls['disk_loads']} from disk, {calls['builds']} built, {calls['bindings']} bound (all instances)"
            ),
        )
    if method["method_key"] is not None:
        yield "method key", f"{method['method_key'][:12]} in {method['store'] or 'memory'}"
    for each in method["refusals"]:
        label = "refused" if each["refused"] else "eagerly"
        calls_so_far = _times(each["calls"], "call") if each["calls"] else "no call yet"
        yield label, f"{each['reason'].rstrip('.')} ({calls_so_far})"
        if each["remedy"]:
            yield "remedy", each["remedy"]
    if method["changes"]:
        fired = (f"{what} had changed ({_times(times, 'time')})" for what, times in method["changes"].items())
        yield "guards", ", ".join(fired)


def _of_version(version: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for each in version["takes"]:
        yield "takes", each
    for name, value in version["constants"].items():
        yield "constant", f"{name} = {value}"
    if version["passed"] is not None:
        yield "passed", version["passed"]
    if version["told_apart_by"]:
        yield "differs", f"from others in {_listed(version['told_apart_by'])}"
    for each in version["dynamic"]:
        yield "varies", f"{each['tensor']} axis {each['axis']}: {each['why']}"
    for each in version["fixed_by_the_tracer"]:
        why = f" ({each['why']})" if each["why"] else ""
        yield "fixed", f"{each['tensor']} axis {each['axis']}: the tracer allows no other size{why}"
    for each in version["conditions"]:
        yield "condition", each
    for each in version["branches"]:
        yield "branch", f"{each}, which each call is checked for"
    for each in version["numbers"]:
        yield "number", f"{each}, which each call is checked for"
    for each in version["gives"]:
        yield "gives", each
    for each in version["writes"]:
        yield "writes", each
    if version["assigns"]:
        yield "assigns", ", ".join(version["assigns"])
    served, weights = ", ".join(version["served_by"]), ", ".join(version["weights"])
    yield "served by", (served or "nothing at present") + (f" (weights {weights})" if weights else "")
    for choice in version["choices"]:
        parts = [by_time(each, _time) for each in (choice["seconds"], choice["in_a_row"]) if each]
        figures = "; one after the other ".join(parts)
        size = "" if choice["elements"] is None else "{:,} to {:,} elements: ".format(*choice["elements"])
        size = "".join(f"{name} {value}, " for name, value in choice["differs_by"].items()) + size
        busy = "" if choice["steady"] else " (on a busy machine)"
        yield "choice", f"{size}{choice['engine']}; a call took: {figures}{busy}"
    for engine, why in version["not_considered"].items():
        yield "left out", f"{engine}: {why}"
    for engine, decisions in version["decisions"].items():
        alike = Counter(f"{each['rule']}: {each['why']}" for each in decisions)
        for what, times in alike.items():
            yield "planned", f"{engine}, {what}{'' if times == 1 else f' ({times} times)'}"
    for engine, error in version["largest_error"].items():
        yield "error", f"{error:.3g} at most ({engine} against eager)"
    if version["seconds"]:
        yield "time", ", ".join(f"{step} {_time(seconds)}" for step, seconds in version["seconds"].items())
    yield "bytes", ", ".join(f"{what} {_size(number)}" for what, number in version["bytes"].items())


def _listed(values: Mapping[str, str]) -> str:
    """What values things have: those of equal blocks together, of many the first."""
    alike = Counter((re.sub(r"(?<=\.)\d+(?=\.)", "*", what), text) for what, text in values.items())
    told = [f"{what} = {text}" + (f" ({times} times)" if times > 1 else "") for (what, text), times in alike.items()]
    return _differences.listed(told, _MOST)


def _times(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
