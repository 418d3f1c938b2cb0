"""Fail if the tests of a framework or of an engine did not run: ``python .ci/frameworks_tested.py out/junit.xml``."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

FRAMEWORKS = ("torch", "paddle", "openvino", "tensorrt")
# A complete install may still lack the hardware; nothing else excuses a skip.
EXCUSES = ("gpu", "cuda", "nvidia")


def main(path: str) -> int:
    passed = dict.fromkeys(FRAMEWORKS, 0)
    problems: list[str] = []
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        skipped = case.find("skipped")
        reason = "" if skipped is None else f"{skipped.get('message', '')} {skipped.text or ''}"
        for framework in FRAMEWORKS:
            if skipped is None:
                passed[framework] += framework in name.lower()
            elif framework in (name + reason).lower() and not any(word in reason.lower() for word in EXCUSES):
                problems.append(f"skipped: {name}: {reason.strip()}")
    problems += [f"no test with {framework} in its name ran" for framework, count in passed.items() if count == 0]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(", ".join(f"{framework}: {count} tests ran" for framework, count in passed.items()))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
