"""What Flower's clients do. A module of its own: Ray's actors import it once and keep its data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.work import Work, shares, training_set

client = ClientApp()


def network(work: Work) -> torch.nn.Module:
    (hidden,) = work.hidden
    return torch.nn.Sequential(
        torch.nn.Linear(28 * 28, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
    )


@lru_cache(maxsize=1)
def resident(text: str) -> tuple[Any, Any, Any, torch.nn.Module]:
    """What an actor keeps between messages: samples, who holds which, a model to load."""
    work = Work.parse(text)
    torch.set_num_threads(1)  # there is an actor on each core
    x, y = (torch.from_numpy(array) for array in training_set(work))
    held = [torch.from_numpy(part) for part in shares(len(y), work.devices)]
    return x, y, held, network(work)


@client.train()
def train(message: Message, context: Context) -> Message:
    text = message.content["config"]["work"]
    work = Work.parse(text)
    x, y, held, model = resident(text)
    own = held[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
    for _ in range(work.rounds):
        index = own[torch.randint(len(own), (work.batch,))]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[index]), y[index]).backward()
        optimizer.step()
    answer = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(own)}),
        }
    )
    return Message(content=answer, reply_to=message)
