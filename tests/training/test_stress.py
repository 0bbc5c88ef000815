"""No hang and no abort: runs over seeds, evaluations, processors, commands and processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from itertools import product

import pytest

from tests.samples import sample

# Five runs in one process, with an evaluation in every 1st to 5th iteration and all iterations in
# one chunk: as many programs as possible are there to be queued.
SCRIPT = """
import sys, tempfile
import jax
import joulemesh
from tests.samples import sample

kind, seeds, rank, processes, port = sys.argv[1], *map(int, sys.argv[2:])
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, rank)
base = joulemesh.Scenario.preset("adaptive").override(
    {"devices.count": 8, "plan.iterations": 80, "training.chunk_iterations": 80})
for every in range(1, 6):
    scenario = base.override({"training.eval_every": every})
    if kind == "run":
        joulemesh.run(scenario, seeds=seeds)
    else:
        with tempfile.TemporaryDirectory() as cache:
            joulemesh.compare(scenario, "adaptive,d-psgd", seeds=seeds, cache=cache)
    print("done", every, flush=True)
"""
PATIENCE_S = 240


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "compare"])
@pytest.mark.parametrize(("processors", "seeds"), sample(product(range(1, 5), range(1, 6)), 2))
def test_five_runs_end(kind: str, seeds: int, processors: int) -> None:
    processes = 2 if kind == "run" and seeds % 2 == 0 else 1
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(processors)}
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, kind, *map(str, (seeds, rank, processes, port))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in range(processes)
    ]
    try:
        for process in started:
            printed, said = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, printed.count("done")) == (0, 5), said[-3000:]
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
