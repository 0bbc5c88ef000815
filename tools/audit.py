"""Known vulnerabilities of the pinned versions, by pip-audit.

    python -m tools.audit

Ends with 1 if there are any. Where no source of advisories can be reached, it says so and ends with
0: pip-audit itself would report "no known vulnerabilities" if the index answers for no package.
"""

from __future__ import annotations

__all__ = ["main", "verdict"]

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
SOURCES = ("pypi", "osv")


def verdict(report: dict[str, Any]) -> tuple[int, list[str]]:
    """How many packages were audited, and a line for each vulnerability or package left out.

    >>> verdict({"dependencies": [{"name": "a", "skip_reason": "not found"}]})
    (0, ['a: not audited: not found'])
    """
    lines, audited = [], 0
    for package in report["dependencies"]:
        if "skip_reason" in package:
            lines.append(f"{package['name']}: not audited: {package['skip_reason']}")
            continue
        audited += 1
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            lines.append(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
    return audited, lines


def _ask(source: str) -> tuple[int, list[str]]:
    """The verdict by a source of advisories; nothing audited if it cannot be reached."""
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--requirement", str(CONSTRAINTS), "--disable-pip",
         "--no-deps", "--vulnerability-service", source, "--format", "json",
         "--progress-spinner", "off", "--timeout", "20"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        return verdict(json.loads(done.stdout))
    except ValueError:
        said = done.stderr.strip().splitlines() or ["it printed nothing"]
        return 0, [said[-1][:200]]


def main() -> None:
    """Audit the versions of constraints.txt."""
    for source in SOURCES:
        audited, lines = _ask(source)
        if audited:
            print("\n".join([*lines, f"{audited} packages audited ({source})"]))
            sys.exit(any("not audited" not in line for line in lines))
        print(f"{source}: no advisories to be had: {lines[0] if lines else 'no package'}")
    print("audit skipped: no source of advisories can be reached from here")


if __name__ == "__main__":
    main()
