"""What README.md and docs/ show is so: Python is run, commands are parsed, names and links are looked up."""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import PAGES, REPOSITORY, Block, Session, commands, sessions
from forks import forked

RUNNER = Path(__file__).with_name("docs_runner.py")
#: Written by `make bench`, which no test does.
MEASURED = REPOSITORY / "docs" / "benchmarks"

_MASKS = (
    (re.compile(r"\S*?(\w+)\.py:\d+"), "FILE:LINE"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "KEY"),
    (re.compile(r"\d[\d.,]*(e[-+]?\d+)? ?(ns|us|ms|s|B|kB|MB|GB)\b"), "FIGURE"),
    (re.compile(r"\b\d(\.\d+)?e-\d+\b|\b0(?= at most)"), "FIGURE"),
    (re.compile(r"\d+(\.\d+)?(%|x\b)"), "FIGURE"),
    (re.compile(r"/\S+"), "PATH"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" +\n"), "\n"),
)


def masked(text: str) -> str:
    """Without what differs from machine to machine: times, sizes, keys, places of files, widths of columns."""
    text = text.strip() + "\n"
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text


def agrees(block: Block, said: str) -> bool:
    assert block.output is not None
    if block.measured:  # which rows a table has; their order and the choices are the machine's
        rows = block.output.partition("\n\n")[0].splitlines()
        return {row.split()[0] for row in rows} <= {*said.split()}
    return doctest.OutputChecker().check_output(masked(block.output), masked(said), doctest.ELLIPSIS)


@pytest.mark.processes
@pytest.mark.timeout(240)
@pytest.mark.parametrize("session", [pytest.param(each, id=each.name) for each in sessions()])
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(session: Session, tmp_path: Path) -> None:
    text = "\n".join(block.text for block in session.blocks)
    used = [name for name in ("torch", "paddle") if re.search(rf"^\s*(import|from) {name}\b", text, re.MULTILINE)]
    for name in used:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"could not import {name!r}")
    lines: list[str] = []
    for block in session.blocks:
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    source, listed = tmp_path / "model.py", tmp_path / "blocks.json"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    listed.write_text(json.dumps([[block.line, block.text] for block in session.blocks]), encoding="utf-8")
    variables = {"PYTHONPATH": str(REPOSITORY), "HYBRID_INFER_CACHE_DIR": str(tmp_path / "cache")}
    if used:
        printed = forked(used[0], RUNNER, str(source), str(listed), folder=tmp_path, **variables)
    else:
        command = [sys.executable, str(RUNNER), str(source), str(listed)]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        printed = done.stdout
    results = json.loads(printed.splitlines()[-1])
    for block, result in zip(session.blocks, results, strict=False):
        place = f"{session.page.relative_to(REPOSITORY)}:{block.line}"
        assert "fault" not in result, f"{place}\n{result['fault']}"
        if block.output is not None:
            assert agrees(block, result["said"]), f"{place} says\n{block.output}\nand prints\n{result['said']}"
    assert len(results) == len(session.blocks)


@pytest.mark.parametrize(
    ("page", "command"), [pytest.param(p, c, id=f"{p.stem}: {c}"[:80]) for p, c in commands()]
)
def test_a_command_is_one_that_there_is(page: Path, command: str) -> None:
    from hybrid_infer import cli

    command = re.sub(r'"\$\((.*)\)"', r"$(\1)", command)
    for each in [*re.findall(r"\$\((.*?)\)", command), re.sub(r"\$\(.*?\)", "x", command)]:
        words = [word for word in shlex.split(each) if not re.match(r"[A-Z_]+=", word)]
        if words[:3] == ["python", "-m", "hybrid_infer"]:
            words = ["hybrid-infer", *words[3:]]
        if words[:1] == ["hybrid-infer"]:
            cli._parser().parse_args(words[1:])
        elif words[:1] == ["make"]:
            targets = re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            assert set(words[1:]) <= set(targets)
        elif words[:2] == ["pip", "install"]:
            extras = {name for word in words for found in re.findall(r"\[(.*)\]", word) for name in found.split(",")}
            assert extras <= set(re.findall(r'^    "(\w+)": \[', (REPOSITORY / "setup.py").read_text(), re.MULTILINE))
        elif words[:1] == ["python"] and words[1].startswith("examples/"):
            assert (REPOSITORY / words[1]).is_file()


def test_a_variable_of_the_environment_is_one_that_the_library_reads() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "hybrid_infer").rglob("*.py"))
    for page in PAGES:
        for name in set(re.findall(r"\bHYBRID_INFER_[A-Z_]+", page.read_text(encoding="utf-8"))):
            assert name in source, f"{page.name} names {name}"


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: headings as they are slugged, and names that are given."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = set(re.findall(r"\{ ?#([\w-]+)", text))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\{.*?\}|[`*]", "", heading).strip().lower()
        found.add(re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain)))
    return found


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(REPOSITORY).as_posix()) for page in PAGES])
def test_a_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if there.is_relative_to(MEASURED):
            continue
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or there.suffix != ".md" or anchor in anchors(there), f"{page.name} links to {target}"


def test_every_option_has_a_section_with_its_default() -> None:
    import inspect

    from hybrid_infer import inference

    text = (REPOSITORY / "docs" / "options.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^### (\w+) \{ #\1 \}\n\nDefault `([^`]*)`", text, re.MULTILINE))
    parameters = dict(inspect.signature(inference).parameters)
    del parameters["function"]
    shown = {name: repr(each.default).replace("'", '"') for name, each in parameters.items()}
    assert told == shown
