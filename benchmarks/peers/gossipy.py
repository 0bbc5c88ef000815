"""gossipy (gossipy-dfl): gossip learning on a ring, one message per node and round.

A node that receives a model merges it with its own and trains one pass over its data: with 5
batches of data that is 5 device-steps per message, as many in a round as the work has in an
iteration. Nothing is evaluated in the timed part (the data handler has no test set).
"""

from __future__ import annotations

import sys
import time
import types
from typing import Any

# gossipy imports torchvision for downloads alone, and does not declare it; PyPI's needs CUDA.
sys.modules.setdefault("torchvision", types.ModuleType("torchvision"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gossipy.core import (  # noqa: E402
    AntiEntropyProtocol,
    ConstantDelay,
    CreateModelMode,
    StaticP2PNetwork,
)
from gossipy.data import DataDispatcher  # noqa: E402
from gossipy.data.handler import ClassificationDataHandler  # noqa: E402
from gossipy.model import TorchModel  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator  # noqa: E402

from benchmarks.serve import cores, serve  # noqa: E402
from benchmarks.work import Work, shares, training_set  # noqa: E402

ROUND = 100  # time steps of a round, as in gossipy's examples


class MLP(TorchModel):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
        )

    def init_weights(self, *args: Any, **kwargs: Any) -> None:
        for layer in self.layers:
            if isinstance(layer, torch.nn.Linear):
                layer.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def ring(devices: int) -> Any:
    """Adjacency matrix of a ring."""
    eye = np.eye(devices, dtype=int)
    return np.roll(eye, 1, axis=1) + np.roll(eye, -1, axis=1)


def simulator(work: Work) -> GossipSimulator:
    x, y = (torch.from_numpy(array) for array in training_set(work))
    handler = ClassificationDataHandler(x, y, test_size=0)
    dispatcher = DataDispatcher(handler, n=work.devices, eval_on_user=False, auto_assign=False)
    each = work.rounds * work.batch
    held = [part[:each].tolist() for part in shares(len(y), work.devices)]
    dispatcher.set_assignments(held, None)
    proto = TorchModelHandler(
        net=MLP(x.shape[1], *work.hidden),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": work.learning_rate},
        criterion=torch.nn.CrossEntropyLoss(),
        local_epochs=1,
        batch_size=work.batch,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    nodes = GossipNode.generate(
        data_dispatcher=dispatcher,
        p2p_net=StaticP2PNetwork(work.devices, ring(work.devices)),
        model_proto=proto,
        round_len=ROUND,
        sync=True,
    )
    return GossipSimulator(
        nodes=nodes,
        data_dispatcher=dispatcher,
        delta=ROUND,
        protocol=AntiEntropyProtocol.PUSH,
        delay=ConstantDelay(0),
    )


def main() -> None:
    work = Work.parse(sys.argv[1])
    torch.set_num_threads(cores())
    simulation = simulator(work)
    simulation.init_nodes(seed=0)
    simulation.start(n_rounds=1)

    def block(_: str) -> dict[str, Any]:
        start = time.perf_counter()
        simulation.start(n_rounds=work.iterations)
        return {"seconds": time.perf_counter() - start, "device_steps": work.device_steps}

    serve(block, "gossipy-dfl", "torch")


main()
