"""``hybrid-infer doctor``: what this machine has for the library, and whether it works."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from hybrid_infer import _options
from hybrid_infer._errors import OptionError
from hybrid_infer.reports import _colour, _tables

#: What each framework needs beside itself, and the extra that brings it.
FRAMEWORKS = {"torch": ("onnxscript", "torch"), "paddle": ("paddle2onnx", "paddle")}
_DISTRIBUTIONS = ("numpy", "onnx", "onnxruntime", "openvino", "onnxscript", "paddle2onnx", "safetensors")
#: Instructions that decide which kernels engines have.
_FLAGS = ("avx2", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
          "asimd", "bf16", "sve")  # fmt: skip
_SECONDS = 300.0  # that a check may take: on a busy machine frameworks take a minute to import


def examine(cache_dir: str | None = None) -> dict[str, Any]:
    """All that is found out, as JSON data; ``problems`` keep the library from serving anything, ``notes`` do not."""
    from hybrid_infer import __version__

    problems: list[str] = []
    notes: list[str] = []
    found: dict[str, Any] = {
        "hybrid_infer": {"version": __version__, "path": str(Path(__file__).resolve().parents[1])},
        "python": {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()},
        "packages": {name: version for name in _DISTRIBUTIONS if (version := _version(name))},
        "frameworks": dict(_frameworks(problems)),
        "engines": _engines(problems),
        "cache": _cache(cache_dir, problems, notes),
        "processor": _processor(),
        "environment": _options.surroundings(),
        "gpus": _gpus(notes),
    }
    refused = _asked(found["engines"], problems, notes)
    for name, each in found["frameworks"].items():
        for engine, result in each.get("engines", {}).items():
            if result["problem"] and not (refused and refused in result["problem"]):
                problems.append(f"{name} is not served by {engine}: {result['problem']}")
    return {**found, "problems": problems, "notes": notes}


def _asked(engines: Mapping[str, Any], problems: list[str], notes: list[str]) -> str:
    """What the environment asks for and programs do not get; returns why they would not even start, if so."""
    try:
        options = _options.make({})
    except OptionError as fault:
        problems.append(str(fault))
        return str(fault)
    if options.backend and all("missing" in engines.get(name, ()) for name in options.backend):
        name = options.backend[0]
        problems.append(f"{_options.said('backend')}: {engines[name]['missing']}")
    if (stance := _options.said("stance")).endswith("=eager"):
        notes.append(f"{stance}: programs run eagerly for as long as that is set")
    return ""


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _frameworks(problems: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    present = [name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None]
    if not present:
        problems.append("neither PyTorch nor Paddle is installed: pip install 'hybrid_infer[torch]' or '[paddle]'")
    for name, (exporter, extra) in FRAMEWORKS.items():
        if name not in present:
            yield name, {"missing": f"the package {name} is not installed"}
        elif importlib.util.find_spec(exporter) is None:
            remedy = f"pip install 'hybrid_infer[{extra}]'"
            why = f"the package {exporter}, which writes its graphs, is not installed: {remedy}"
            problems.append(f"{name}: {why}")
            yield name, {"missing": why}
        else:
            found = _checked(name)
            if "problem" in found:
                problems.append(f"{name}: {found['problem']}")
            yield name, found


def _checked(name: str) -> dict[str, Any]:
    """The end-to-end check of a framework, in a process and a cache of its own."""
    here = str(Path(__file__).resolve().parents[2])
    start = "import sys; sys.path.insert(0, sys.argv[1]); from hybrid_infer.reports._doctor_check import main; main()"
    with tempfile.TemporaryDirectory(prefix="hybrid_infer-doctor-") as folder:
        target = Path(folder, "result.json")
        command = [sys.executable, "-c", start, here, name, folder, str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return {"problem": f"the check was not done after {_SECONDS:.0f} s"}
        if done.returncode == 0 and target.exists():
            found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
            return found
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"problem": f"the check ended with status {done.returncode}: {last}"}


def _engines(problems: list[str]) -> dict[str, dict[str, Any]]:
    from hybrid_infer import backends

    found: dict[str, dict[str, Any]] = {}
    for name in backends.ENGINES:
        engine = backends.engine(name)
        missing = engine.missing()
        if missing:
            found[name] = {"missing": missing}
        else:
            native = [each for each in _options.PRECISIONS if engine.native(each)]
            found[name] = {"version": engine.version(), "computes_in": native}
    if all("missing" in each for each in found.values()):
        problems.append("there is no engine: " + "; ".join(f"{n}: {each['missing']}" for n, each in found.items()))
    return found


def _cache(cache_dir: str | None, problems: list[str], notes: list[str]) -> dict[str, Any]:
    from hybrid_infer.cache import Store

    root = _options.store_root(_options.Options(save_model_dir=cache_dir))
    bases = _options.store_bases(root)
    place = next(each for each in (root, *root.parents) if each.exists())  # where it would be made
    refused = _refused(place)
    found: dict[str, Any] = {
        "path": str(root), "exists": root.is_dir(), "writable": not refused, "read_only": list(map(str, bases)),
        "mode": None, "owner": None, "size": 0, "models": 0, "free": shutil.disk_usage(place).free,
    }  # fmt: skip
    if refused:
        problems.append(f"the cache {root} cannot be written ({refused}): {_options.REMEDY}")
    if root.is_dir():
        status = root.stat()
        found["mode"], found["owner"] = f"{stat.S_IMODE(status.st_mode):04o}", status.st_uid
        if status.st_mode & stat.S_IWOTH:
            notes.append(f"{root} can be written by every user: what others put there may not be loaded")
        store = Store(root, base=bases)
        found["size"], found["models"] = store.size(), sum(1 for _ in store.entries())
    if found["free"] < 1 << 30:
        notes.append(f"less than 1 GiB is free where the cache is ({root})")
    return found


def _refused(place: Path) -> str:
    """Why no file can be made in a directory; empty where one can. Nothing else tells, where it is root who asks."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\0")
            file.flush()
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""


def _processor() -> dict[str, Any]:
    model, flags = platform.processor() or platform.machine(), set()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() == "model name":
            model = value.strip()
        elif label.strip() in ("flags", "Features"):
            flags |= set(value.split())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": model, "machine": platform.machine(), "cores": os.cpu_count(), "usable": usable,
        "instructions": [flag for flag in _FLAGS if flag in flags],
    }  # fmt: skip


def _gpus(notes: list[str]) -> list[dict[str, str]]:
    """NVIDIA's, as their driver names them; this process uses none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as fault:
        notes.append(f"nvidia-smi does not answer: {fault}")
        return []
    if done.returncode:
        notes.append(f"nvidia-smi failed: {(done.stdout or done.stderr).strip()[:200]}")
        return []
    names = ("name", "memory", "driver", "compute_capability")
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(names, row, strict=False)) for row in rows]


def text(found: Mapping[str, Any], *, colour: bool = False, width: int | None = None) -> str:
    """The findings as aligned lines, what is wrong last; with colours where a terminal shows them.

    `width`: of the terminal, to which they are folded.
    """
    rows: list[tuple[str, str]] = [
        ("hybrid_infer", f"{found['hybrid_infer']['version']} in {found['hybrid_infer']['path']}"),
        ("Python", f"{found['python']['version']} ({found['python']['executable']}), {found['python']['platform']}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in found["packages"].items())),
    ]
    rows += [row for name, each in found["frameworks"].items() for row in _framework(name, each)]
    for name, each in found["engines"].items():
        if "missing" in each:
            rows.append((name, f"missing: {each['missing']}"))
        else:
            rows.append((name, f"{each['version']}, kernels for {', '.join(each['computes_in'])}"))
    cache = found["cache"]
    state = "writable" if cache["writable"] else "NOT writable"
    mode = f", mode {cache['mode']}" if cache["mode"] else ", not there yet"
    rows.append(("cache", f"{cache['path']} ({state}{mode})"))
    models = f"{cache['models']} static model{'' if cache['models'] == 1 else 's'}"
    rows.append(("", f"{models}, {cache['size'] / 1e6:.1f} MB; {cache['free'] / 1e9:.1f} GB free"))
    rows += [("", f"also read: {path}") for path in cache["read_only"]]
    cpu = found["processor"]
    rows.append(("processor", f"{cpu['model']}, {cpu['usable']} of {cpu['cores']} cores usable"))
    rows.append(("", f"instructions: {' '.join(cpu['instructions']) or 'not known'}"))
    named = [f"{name}={value}" for name, value in found["environment"].items()]
    if "OMP_NUM_THREADS" not in found["environment"]:
        named.append("OMP_NUM_THREADS is not set")
    rows += [("environment", each) for each in named]
    gpus = [f"{each['name']}, {each.get('memory', '')}, driver {each.get('driver', '')}" for each in found["gpus"]]
    rows += [("GPU", each) for each in gpus or ["none found"]]
    rows += [("note", each) for each in found["notes"]]
    rows += [("PROBLEM", each) for each in found["problems"]]
    if not found["problems"]:
        rows.append(("result", "all is well"))
    paint = _colour.painter(colour)
    kinds = {"PROBLEM": "bad", "note": "bad", "result": "good"}
    blocks = _tables.blocks([], rows, width=width)
    columns = max(len(label) for label, _ in rows)
    lines = []
    for (label, _), (first, *more) in zip(rows, blocks, strict=True):
        lines += [paint(first[:columns], kinds.get(label, "head")) + first[columns:], *more]
    return "\n".join(lines)


def _framework(name: str, found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "missing" in found or "problem" in found:
        yield name, f"missing: {found['missing']}" if "missing" in found else "does not work, see below"
        return
    yield name, f"{found['version']}, {found['threads']} threads, imported in {found['import_seconds']:.1f} s"
    for engine, result in found["engines"].items():
        good = (
            "served; largest error {error:.1e}, first call {first_seconds:.2f} s, from disk {from_disk_seconds:.3f} s"
        )
        yield "", f"check with {engine}: {'failed' if result['problem'] else good.format(**result)}"
