"""PyTorch modules are trained where JAX is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib", "optax", "flax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import joulemesh
from torch import nn

small = {"devices.count": 6, "network.topology": "complete", "plan.iterations": 3}
scenario = joulemesh.Scenario.preset("adaptive").override(small)
module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
result = joulemesh.run(scenario, model=module, out=sys.argv[1] + "/run")
methods = ["adaptive", "pens", "led", "gossip-learning", "balanced:compress=topk:0.1"]
study = joulemesh.compare(scenario, methods, "iterations", model=module, seeds=1)
study.save(sys.argv[1] + "/study")
assert result.accuracy[-1] > 0.3, result.accuracy
print(len(study.entries))
"""


def test_a_module_is_run_and_compared_by_every_kind_of_exchange(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "5"
    assert (tmp_path / "run" / "model.safetensors").is_file()
