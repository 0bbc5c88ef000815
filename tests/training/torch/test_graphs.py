"""Steps captured as CUDA graphs: what is replayed, and that a capture which fails harms nothing.

No GPU is here: ``torch.cuda`` is replaced by one that notes what a step does while it is captured,
and does that when it is replayed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from joulemesh.training.torch.gradients import keep_on
from joulemesh.training.torch.steps import Graphs

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")


class Stream:
    def wait_stream(self, other: Stream) -> None: ...


class Graph:
    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def replay(self) -> None:
        for call in self.calls:
            call()


class Gpu:
    """As much of ``torch.cuda`` as captures need."""

    def __init__(self, fails: bool = False) -> None:
        self.cuda, self.fails = self, fails
        self.current: Any = Stream()
        self.capturing: list[Callable[[], None]] | None = None
        self.captures: list[dict[str, Any]] = []
        self.CUDAGraph, self.Stream = Graph, Stream

    def current_stream(self) -> Any:
        return self.current

    def set_stream(self, stream: Any) -> None:
        self.current = stream

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        was, self.current = self.current, stream
        yield
        self.current = was

    @contextmanager
    def graph(self, graph: Any, **mode: Any) -> Iterator[None]:
        was, self.current = self.current, mode["stream"]
        self.captures.append(mode)
        self.capturing = graph.calls
        try:
            if self.fails:
                raise RuntimeError("operation not permitted when stream is capturing")
            yield  # one that fails stays on its stream, as PyTorch's does
        finally:
            self.capturing = None
        self.current = was

    def synchronize(self) -> None: ...

    def empty_cache(self) -> None: ...

    def graph_pool_handle(self) -> Any:
        return object()

    def step(self, held: Any, index: Any, rates: Any, busy: int) -> None:
        """A step that shows which samples it was of."""

        def done() -> None:
            held[0]["w"][:busy].mul_(2).add_(rates[:busy] * index.sum(dim=1)[:busy])

        if self.capturing is None:
            done()
        else:
            self.capturing.append(done)


def steps(gpu: Gpu, count: int = 6, busy: int = 3) -> Any:
    """The parameters after some steps, each on samples of its own."""
    graphs = Graphs(gpu, gpu.step)
    held: Any = ({"w": torch.zeros(3, dtype=torch.float64)}, {})
    rates = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    for k in range(count):
        graphs.step(held, torch.arange(6).reshape(3, 2) + k, rates, busy)
    return graphs, held[0]["w"]


def plain(count: int = 6, busy: int = 3) -> Any:
    gpu = Gpu()
    held: Any = ({"w": torch.zeros(3, dtype=torch.float64)}, {})
    for k in range(count):
        rates = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        gpu.step(held, torch.arange(6).reshape(3, 2) + k, rates, busy)
    return held[0]["w"]


@pytest.mark.parametrize("busy", [2, 3])
def test_replayed_steps_are_those_that_would_have_been_done(busy: int) -> None:
    gpu = Gpu()
    graphs, given = steps(gpu, busy=busy)
    assert graphs.captured
    assert len(gpu.captures) == 1
    assert given.equal(plain(busy=busy))


def test_graphs_share_a_stream_and_a_pool() -> None:
    gpu = Gpu()
    graphs = Graphs(gpu, gpu.step)
    held: Any = ({"w": torch.zeros(3)}, {})
    rates = torch.ones(3)
    for busy in (3, 3, 2, 2, 1, 1):
        graphs.step(held, torch.ones(3, 2), rates, busy)
    assert len(gpu.captures) == 3
    assert len({id(one["stream"]) for one in gpu.captures}) == 1
    assert len({id(one["pool"]) for one in gpu.captures}) == 1
    assert {one["capture_error_mode"] for one in gpu.captures} == {"thread_local"}


def test_a_capture_that_fails_is_told_and_training_goes_on(caplog: Any) -> None:
    gpu = Gpu(fails=True)
    before = gpu.current
    with caplog.at_level(logging.WARNING, "joulemesh"):
        graphs, given = steps(gpu)
    assert given.equal(plain())
    assert not graphs.captured
    assert len(gpu.captures) == 1  # not tried again
    assert gpu.current is before
    assert [one.getMessage() for one in caplog.records] == [
        "steps are not captured as CUDA graphs (operation not permitted when stream is "
        "capturing), only slower"
    ]


def test_only_the_main_thread_captures() -> None:
    gpu = Gpu()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(steps(gpu)))
    thread.start()
    thread.join()
    assert found[0][1].equal(plain())
    assert not gpu.captures


def test_a_program_makes_nothing_on_another_processor() -> None:
    proxies = pytest.importorskip("torch.fx.experimental.proxy_tensor")

    def loss(x: Any) -> Any:
        return x * torch.tensor([1.0, 2.0]) + torch.arange(2).to(x.device) + torch.tensor(3.0)

    traced = proxies.make_fx(loss)(torch.ones(2))
    with pytest.raises(RuntimeError):  # constants of the CPU
        traced(torch.ones(2, device="meta"))
    keep_on(torch, traced, torch.device("meta"))
    assert traced(torch.ones(2, device="meta")).device.type == "meta"
    assert {one.device.type for _, one in traced.named_buffers()} == {"meta"}
