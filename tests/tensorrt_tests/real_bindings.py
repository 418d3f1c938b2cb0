"""TensorRT's real bindings, each release in a virtual environment of its own, against libraries that stand in for it.

``python tests/tensorrt_tests/real_bindings.py`` writes ``bindings.json`` anew where the engine uses more names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LISTED = HERE / "bindings.json"
#: The releases that the engine is checked with, from the oldest that it serves. A wheel has the bindings alone: 1.3 MB.
RELEASES = ("10.13", "10.16", "11.4")
PACKAGE = "tensorrt_cu13_bindings"

_LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")


class Unavailable(Exception):
    """The bindings cannot be had here; the message says why."""


def install(release: str, folder: Path) -> dict[str, str]:
    """Make an environment with the bindings of a release; returns the variables for its Python. Raises Unavailable."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler for the libraries that stand in for TensorRT's")
    major = release.partition(".")[0]
    libraries = folder / "libraries"
    libraries.mkdir(parents=True)
    for name in _LIBRARIES:
        file = f"lib{name}.so.{major}"
        build = [compiler, "-shared", "-fPIC", "-w", f"-Wl,-soname,{file}", "-o", str(libraries / file)]
        subprocess.run([*build, str(HERE / "stand_ins.c")], check=True, capture_output=True)
    venv = [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")]
    subprocess.run(venv, check=True, capture_output=True)
    site = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    wish = [f"{PACKAGE}=={release}.*", "--only-binary", ":all:", "--target", str(site)]
    done = subprocess.run([*pip, *wish], capture_output=True, text=True, timeout=240)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unavailable(f"{PACKAGE} {release} cannot be installed: {said[-1] if said else 'pip gave no reason'}")
    return {**os.environ, "LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}


def listing(folder: Path, environment: dict[str, str], wanted: dict[str, list[str]]) -> dict[str, Any]:
    """What the bindings of an environment offer of the names that are wanted; see ``listing.py``."""
    python = folder / "venv" / "bin" / "python"
    done = subprocess.run(
        [str(python), str(HERE / "listing.py")], input=json.dumps(wanted), env=environment, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    import tempfile

    from surface import wanted

    found = {}
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "bindings"
            data = listing(folder, install(release, folder), wanted())
            found[release] = {key: data[key] for key in ("version", "classes", "subclassed")}
    LISTED.write_text(text(found), encoding="utf-8")


def text(found: dict[str, Any]) -> str:
    """JSON with a line for each class, so that a change is seen where it is."""
    parts = []
    for release, data in sorted(found.items()):
        lines = [f"{json.dumps(name)}: {json.dumps(data['classes'][name])}" for name in sorted(data["classes"])]
        rest = {key: value for key, value in data.items() if key != "classes"}
        body = ",\n".join(lines)
        parts.append(f'{json.dumps(release)}: {{"facts": {json.dumps(rest)}, "classes": {{\n{body}\n}}}}')
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    main()
