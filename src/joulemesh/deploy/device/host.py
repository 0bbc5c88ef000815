"""What a runner runs on: a clock, timers, workers and a network. In the field, an event loop."""

from __future__ import annotations

__all__ = ["Clock", "EventLoop", "Handle", "Host", "Told", "Works"]

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from joulemesh.deploy.device.rest import give_back_memory
from joulemesh.deploy.device.worker import Worker
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Transport, TransportError

Told = Callable[[TransportError | None], None]
"""Called once for a message: with None when it was acknowledged, with the reason otherwise."""

_OWN = ("handle", "task", "future")  # in what asyncio tells of an error: it is of code of ours


class Handle(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Do not call it."""


class Clock(Protocol):
    """Time that nobody sets; an asyncio event loop is one."""

    def time(self) -> float:
        """Seconds since some moment."""

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Handle:
        """Call something at a time."""


class Works(Protocol):
    """Does one thing after another, beside what calls it; see `Worker`."""

    @property
    def busy(self) -> bool:
        """Is something being done, or waiting to be?"""

    def do(
        self, action: Callable[[], Any], then: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Do something after everything else; then tell what came of it."""

    def close(self) -> None:
        """Do nothing more after what was given."""


class Host(Clock, Protocol):
    """What a runner runs on. Everything that it calls, it calls one at a time."""

    def worker(self, name: str) -> Works:
        """Somebody who does what takes time."""

    def send(self, to: int, message: Message, within_s: float, told: Told) -> None:
        """Carry a message to a neighbour."""

    def rest(self) -> None:
        """Nothing will be done for a while: give back what is not needed meanwhile."""


class EventLoop:
    """A host on the running event loop.

    Whatever goes wrong in code that the loop calls is handed to ``failed``: nothing is only
    printed. What a stranger's connection causes is not: transports deal with that.

    Args:
        transport: carries messages.
        failed: called with an exception that nobody has caught.
    """

    def __init__(self, transport: Transport, failed: Callable[[BaseException], None]) -> None:
        self._loop, self._transport, self._failed = (
            asyncio.get_running_loop(),
            transport,
            failed,
        )
        self._sending: set[asyncio.Task[None]] = set()
        self._before = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._lost)

    def _lost(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and any(name in context for name in _OWN):
            self._failed(error)
        else:
            loop.default_exception_handler(context)

    def time(self) -> float:
        """Seconds of the loop's clock."""
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Handle:
        """Call something at a time."""
        return self._loop.call_at(when, callback, *arguments)

    def worker(self, name: str) -> Works:
        """A thread of its own."""
        return Worker(name)

    def send(self, to: int, message: Message, within_s: float, told: Told) -> None:
        """Carry a message to a neighbour."""
        task = self._loop.create_task(self._carry(to, message, within_s, told))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    async def _carry(self, to: int, message: Message, within_s: float, told: Told) -> None:
        try:
            await self._transport.send(to, message, within_s)
        except TransportError as error:
            told(error)
        else:
            told(None)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def rest(self) -> None:
        """Give back memory."""
        give_back_memory()

    async def linger(self, within_s: float) -> None:
        """Let what is on its way arrive."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=within_s)

    async def close(self) -> None:
        """Give up what is on its way, and listen no more."""
        for task in tuple(self._sending):
            task.cancel()
        await self._transport.close()
        self._loop.set_exception_handler(self._before)
