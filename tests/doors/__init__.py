"""Programs made by machine in which a method depends on values: every kind of value in every place that holds one.

A `Kind` says how a value is made, which number a method derives from it and how it can be changed where it lies; a
`Place` where a program keeps it and how a method reads it from there. `Program` is a module with any number of both,
and `changes` are all that can happen to them. Whatever is served after a change has to be what the eager method gives:
each case that is not is a door through which a stale answer comes.
"""

from doors.kind import Kind
from doors.kinds import EAGER, KINDS, OPAQUE
from doors.places import PLACES, Place
from doors.program import Case, Program, cases, kept, make, selection
from doors.sweep import Finding, across, sweep

__all__ = [
    "EAGER", "KINDS", "OPAQUE", "PLACES", "Case", "Finding", "Kind", "Place", "Program", "across", "cases", "kept",
    "make", "selection", "sweep",
]  # fmt: skip
