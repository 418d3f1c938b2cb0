"""Each reason for an eager answer leads to a section of docs/troubleshooting.md, and has a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hybrid_infer import _troubleshooting

TEXT = (Path(__file__).resolve().parents[1] / _troubleshooting.PAGE).read_text(encoding="utf-8")
#: Sections about what is no reason for an eager answer.
OTHERS = {"stance-error", "cache-warning", "trained-eagerly", "captured-again"}


def test_every_section_is_on_the_page_and_every_one_of_the_page_is_led_to() -> None:
    anchors = re.findall(r"^### .* \{ #([\w-]+) \}$", TEXT, re.MULTILINE)
    names = [each.name for each in _troubleshooting.SECTIONS]
    assert len(set(names)) == len(names)
    assert set(anchors) == {*names, *OTHERS}


def test_every_section_says_why_and_what_to_do() -> None:
    for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]:
        title, name = re.match(r"(.*) \{ #([\w-]+) \}", section).groups()  # type: ignore[union-attr]
        assert name in OTHERS or ("**Why.**" in section and "**Do.**" in section), title


def test_a_message_that_the_page_shows_leads_to_where_it_is_shown() -> None:
    for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]:
        name = re.match(r".* \{ #([\w-]+) \}", section)[1]  # type: ignore[index]
        if name not in OTHERS:
            for reason in re.findall(r"^> ([^.\s].*)$", section, re.MULTILINE):
                given = _troubleshooting.EVALUATE if reason.endswith(_troubleshooting.EVALUATE) else ""
                assert _troubleshooting.section(reason, given).name == name, reason
            for reason, shown in re.findall(r"runs eagerly: (.*) \(see \S+#([\w-]+)\)$", section, re.MULTILINE):
                assert _troubleshooting.section(reason).name == name == shown


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("the operator dropout draws random numbers in training mode", "training-mode"),
        ("the operator gaussian draws random numbers", "random-numbers"),
        ("it reads the system's random numbers", "random-numbers"),
        ("it opens the file /etc/hosts (model.py:3)", "outside-world"),
        ("an attention layer computes something else where its input requires a gradient, which", "gradient-mode"),
        ("it writes to self.count in place", "state-between-calls"),
        ("it writes to argument `x` in place (add_)", "writes-to-arguments"),
        ("it writes in place (add_) to a tensor that is read again", "state-between-calls"),
        ("it replaces the tensor self.state", "state-between-calls"),
        ("openvino: Exception from src/x.cpp", "engines"),
        ("tensorrt: its run could not be started", "engines"),
        ("its static model cannot be given these arguments: TypeError: sparse", "engines"),
        ("ONNX has no form of torch's operator svd", "operators"),
        ("paddle2onnx refused the program: no converter", "operators"),
        ("it could not be traced: KeyError: 1", "tracers"),
        ("Paddle could not trace it: TypeError: x", "tracers"),
        ("what pool2d computes depends on a size that varies", "sizes-that-vary"),
        ("a key of argument `x` is of class float", "arguments"),
        ("it communicates with other processes, by all_reduce (model.py:3)", "collectives"),
        ("it writes to self.count in place, by add_ (model.py:3)", "state-between-calls"),
        ("it raises ValueError while it is traced: negative (model.py:4)", "branch-on-values"),
        ("a loop depends on the values of a tensor, and its body changes self.h (m.py:3)", "branch-on-values"),
        ("`and` depends on the values of a tensor, and its right side changes self.h (model.py:3)", "branch-on-values"),
        ("a branch or loop depends on the values of a tensor, and what it computes is used", "branch-on-values"),
        ("it takes the values of a tensor (float) (model.py:4)", "values-in-python"),
        ("it turns a tensor into a NumPy array (model.py:4)", "values-in-python"),
        ("nobody has ever heard of this", "tracers"),
    ],
)
def test_a_reason_leads_to_its_section(reason: str, name: str) -> None:
    assert _troubleshooting.section(reason).name == name


def test_what_eval_helps_against_is_training_mode_whatever_it_writes_to() -> None:
    told = _troubleshooting.told("it writes to self.norm.running_mean in place", _troubleshooting.EVALUATE)
    assert told.endswith("Call eval() on the layer first (see docs/troubleshooting.md#training-mode)")


def test_what_came_with_a_reason_goes_before_what_usually_helps() -> None:
    assert _troubleshooting.remedy("it changes self.n", "Do this") == "Do this"
    assert _troubleshooting.remedy("it changes self.n", "").startswith("Return the new state")
    assert _troubleshooting.told("it changes self.n", "Do this") == (
        "it changes self.n. Do this (see docs/troubleshooting.md#state-between-calls)"
    )
