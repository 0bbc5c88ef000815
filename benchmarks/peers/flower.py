"""Flower (flwr[simulation]): FedAvg in its simulation engine, a Ray actor on each core.

The message API of current Flower, started by ``run_simulation`` (the same engine as `flwr run`,
in this process). Each block is a simulation of its own; its start and first round, in which the
actors load their data, are left out of the time. Everything stays on the loopback interface.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.flower_app import client, network
from benchmarks.serve import cores, serve
from benchmarks.work import Work


class TimedFedAvg(FedAvg):
    """FedAvg that notes when each round's mean was there, and insists that nobody failed."""

    def __init__(self, devices: int) -> None:
        super().__init__(
            fraction_evaluate=0.0, min_train_nodes=devices, min_available_nodes=devices
        )
        self.devices = devices
        self.ends: list[float] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed or len(replies) != self.devices:
            raise RuntimeError(f"{len(replies)} replies, {len(failed)} failed: {failed[:1]}")
        mean = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return mean


def simulate(work: Work) -> list[float]:
    """When each round ended."""
    strategy = TimedFedAvg(work.devices)
    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(network(work).state_dict()),
            train_config=ConfigRecord({"work": work.dump()}),
            num_rounds=work.iterations + 1,
        )

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=work.devices,
        backend_config={
            "init_args": {"num_cpus": cores(), "_node_ip_address": "127.0.0.1"},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return strategy.ends


def main() -> None:
    work = Work.parse(sys.argv[1])

    def block(_: str) -> dict[str, Any]:
        ends = simulate(work)
        return {"seconds": ends[-1] - ends[0], "device_steps": work.device_steps}

    serve(block, "flwr", "ray", "torch")


main()
