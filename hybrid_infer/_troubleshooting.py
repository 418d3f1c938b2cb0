"""Reasons for eager answers: the section of docs/troubleshooting.md that tells of each, and what usually helps."""

from __future__ import annotations

import re
from typing import NamedTuple

PAGE = "docs/troubleshooting.md"
#: What helps where a layer is in training mode and the method looks whether it is, whatever it does then.
EVALUATE = "Call eval() on the layer first"


class Section(NamedTuple):
    """``name``: the anchor of a section, which never changes; ``pattern``: which reasons it is about."""

    name: str
    pattern: str
    remedy: str = ""


#: The first whose pattern is found in a reason is the one. A remedy stands here where the reason brings none along.
SECTIONS: tuple[Section, ...] = (
    Section(
        "slower",
        r"^no engine makes it faster|^gradients are recorded, and even without|"
        r"^while gradients are recorded, the eager|through a backward pass",
    ),
    Section("look-ups", r"^most of its calls have to be looked up"),
    Section("defects", r"^a defect of hybrid_infer"),
    Section("nested", r"^what it holds is nested too deeply"),
    Section("releases", r"^the package \w+ is not installed|is older than [\d.]+, from which on"),
    Section("collectives", r"^it communicates with other processes", "Decorate the parts before and after it"),
    Section(
        "busy",
        r"being compiled in the background|^another thread|the stance is 'eager'|neither used nor moved|"
        r"has gaps in its memory|where no counter tells|^compiling it in the background failed|"
        r"has no shape before the first call|becomes another layer by|"
        r"^the process that traced|^it raised an error at|^a profiler is on|went another way|"
        r"where a branch goes another way",
    ),
    Section("max-versions", r"^it has max_versions="),
    Section(
        "not-kept-on-disk", r"^what its code reads changes from call to call: .*no fingerprint\)",
        "Vouch for it with cache_key",
    ),
    Section(
        "values-that-change", r"^what its code reads changes from call to call",
        "Pass what differs at each call as an argument, a number as a tensor",
    ),
    Section("hooks", r"has a hook \(|is on the device meta"),
    Section(
        "batch-statistics", r"updates running statistics whatever the mode",
        "Leave use_global_stats at None, or set it to True",
    ),
    Section(
        "training-mode", r"in training mode|(dropout|rrelu)\w* draws|batch_norm.* in place",
        "Pass training=self.training to it (in a function, training=False)",
    ),
    Section(
        "random-numbers", r"draws? (from|random)|random numbers",
        "Draw outside of the method and pass the numbers as an argument",
    ),
    Section(
        "outside-world",
        r"it reads (the (?!attribute)|a (hash|setting|module|stream)|where (Python|an object)|how often|"
        r"what the process|which modules|NumPy's|whether (a|`))|"
        r"it leaves a lock|it opens the file|it runs another program|it changes the file system",
        "Read it outside of the method and pass it as an argument",
    ),
    Section("settings", r"which outlasts the call", "Call it outside of the method"),
    Section(
        "iterators", r"it uses (an iterator|variables of the thread)", "Pass what it gives as an argument",
    ),
    Section(
        "writes-to-arguments",
        r"it writes to (argument|elements of argument|the argument|an argument|integer|a tensor)|"
        r"changes the shape of a tensor in place|depends on the layout in memory|"
        r"lies in the memory of what it is given",
        "Compute a new tensor instead, or return what was written",
    ),
    Section(
        "state-between-calls",
        r"it moves or converts|"
        r"it changes |it replaces the t(ensor|uple)|it assigns the global|it writes (to|in place)|cannot be wound back",
        "Return the new state and assign it outside, or decorate the part that only computes",
    ),
    Section(
        "branch-on-values",
        r"^(a branch|a loop|a branch or loop|`and`|`or`) depends on the values|^it raises \w+ while it is traced|"
        r"^a list grows in a loop or branch|^a loop through what is no tensor",
        "Let Python's numbers decide how often it is appended to, or decorate what computes an element",
    ),
    Section("size-from-values", r"depends on the values of a tensor"),
    Section("values-in-python", r"it calls \.\w+\(\) on a tensor|where a tensor lies in memory|"
        r"^it takes the values of a tensor|^it turns a tensor into a NumPy array",
    ),
    Section(
        "contexts", r"which a static graph does not keep", "Enter it around the call of the method instead",
    ),
    Section(
        "gradient-mode",
        r"asks whether gradients are recorded|asks tensors for |registers a hook on|"
        r"where its input requires a gradient|it has an argument require a gradient",
    ),
    Section(
        "effects", r"prints a tensor|asserts on a tensor|calls Python", "Leave that outside of the method",
    ),
    Section("operators", r"ONNX has no form|paddle2onnx|could not spell|converted graph|which it overlooks"),
    Section(
        "attributes-of-tensors", r"it (may )?reads? the attribute",
        "Keep it on the layer, or pass it as an argument",
    ),
    Section(
        "arguments",
        r"^(an? )?(argument|key of)|^it is given an object|^its arguments are nested|^a wrapper around it takes other",
    ),
    Section("results", r"^the result|it returns a|computes nothing from|is one of its results"),
    Section("views", r"is a view of an argument or a weight", "Return a copy: result.clone()"),
    Section("disagreement", r"does not do what the eager method does"),
    Section("copies", r"cannot be copied|does not have the layer's structure"),
    Section("tensors-out-of-sight", r"no layer, closure or global|neither an argument nor held"),
    Section(
        "saved-programs", r"is a module of TorchScript|is a program that paddle\.jit\.load",
        "Hold the layer that it was made of",
    ),
    Section(
        "held-static-functions",
        r"\._class_instance, which holds it out of sight|^it calls what paddle\.jit\.to_static made",
        "Leave the layer without to_static, or put @paddle.jit.to_static above the method in its class",
    ),
    Section(
        "layers-out-of-sight", r"holds it out of sight|no backend of PyTorch's",
        "Make it an attribute of the layer, and the function a method",
    ),
    Section(
        "class-methods", r"^it is a class method", "Decorate a method of its instances, a static method or a function"
    ),
    Section("no-framework", r"holds no layer or tensor|nor the objects that it uses hold|^nothing would tell when its"),
    Section("objects-made-anew", r"^it is given another object with layers"),
    Section("sizes-that-vary", r"where sizes vary|that varies|is computed|cannot vary|neither an input nor a constant"),
    Section(
        "engines",
        r"^no engine|^(onnxruntime|openvino|native|tensorrt|null)\b|cannot be given these arguments|^pass ",
    ),
    Section("tracers", r""),
)


def section(reason: str, given: str = "") -> Section:
    """The section about a reason with the remedy that came with it; that about tracers where no other is."""
    if given == EVALUATE:
        return next(each for each in SECTIONS if each.name == "training-mode")
    return next(each for each in SECTIONS if re.search(each.pattern, reason))


def remedy(reason: str, given: str) -> str:
    """What to do about a reason: what came with it, else what usually helps."""
    return given or section(reason).remedy


def told(reason: str, given: str) -> str:
    """A reason with its remedy and its section, for a log line."""
    about, text = section(reason, given), reason.rstrip(".")
    advice = given or about.remedy
    return f"{text}{f'. {advice}' if advice else ''} (see {PAGE}#{about.name})"
