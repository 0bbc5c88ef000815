"""What a runner runs on: a clock, timers, workers and a network. In the field, an event loop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import mmap
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

from joulemesh.base.machine import trim_memory
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Transport, TransportError

_LEAST_BYTES = 2**16


def give_back_memory() -> None:
    """Return freed memory to the system, and let go of the pages of libraries' code.

    Code of JAX that was needed once, for compiling above all, would stay resident; what is
    needed again is found in the system's cache. Where the system cannot be told so, nothing
    happens.

    >>> give_back_memory()
    """
    gc.collect()
    trim_memory()
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError, ValueError):
        libc = ctypes.CDLL(None)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        with open("/proc/self/smaps") as maps:
            for start, stop in list(_clean(maps)):
                libc.madvise(start, stop - start, mmap.MADV_DONTNEED)


def _clean(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where files are mapped that nobody can write to and nobody has written to.

    Parts that the loader has written before it made them read-only hold anonymous pages, which
    are nowhere else: they must stay.

    >>> list(_clean(["7f00-7f0100000 r-xp 0 08:01 5 /lib/a.so", "Anonymous: 0 kB"]))
    [(32512, 34092351488)]
    >>> list(_clean(["7f00-7f0100000 r--p 0 08:01 5 /lib/a.so", "Anonymous: 4 kB"]))
    []
    """
    place = None
    for line in lines:
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):
            rights, inode = rest[0], rest[3]
            start, stop = (int(one, 16) for one in first.split("-"))
            fixed = "w" not in rights and "s" not in rights and inode != "0"
            place = (start, stop) if fixed and stop - start >= _LEAST_BYTES else None
        elif first == "Anonymous:" and rest[0] == "0" and place is not None:
            yield place


_Job = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class Worker:
    """Does what it is given, in order, in a thread of its own.

    The thread does not keep the process alive: a long training must not delay the end of a node
    whose state is saved.

    >>> async def twice() -> int:
    ...     worker = Worker("example")
    ...     done = asyncio.get_running_loop().create_future()
    ...     worker.do(lambda: 21 * 2, lambda value, error: done.set_result(value))
    ...     return await done
    >>> asyncio.run(twice())
    42
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._left = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Is something being done, or waiting to be?"""
        return self._left > 0

    def do(
        self, action: Callable[[], Any], then: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Do something after everything else; then tell the event loop what came of it."""
        self._left += 1
        self._jobs.put((action, then))

    def close(self) -> None:
        """Let the thread end after what it was given."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            action, then = job
            value, error = None, None
            try:
                value = action()
            except BaseException as raised:  # whatever a learner's code may raise
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._tell, then, value, error)
            except RuntimeError:  # the loop has ended, and nobody wants to know
                return
            del job, action, then, value, error  # parameters may be large

    def _tell(
        self, then: Callable[[Any, BaseException | None], None], value: Any, error: Any
    ) -> None:
        self._left -= 1
        then(value, error)


Told = Callable[[TransportError | None], None]
"""Called once for a message: with None when it was acknowledged, with the reason otherwise."""

_OWN = ("handle", "task", "future")  # in what asyncio tells of an error: it is of code of ours


class Handle(Protocol):
    """Something that will be called."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time that nobody sets; an asyncio event loop is one."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Handle: ...


class Works(Protocol):
    """Does one thing after another, beside what calls it; see `Worker`."""

    @property
    def busy(self) -> bool:
        """Is something being done, or waiting to be?"""

    def do(
        self, action: Callable[[], Any], then: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Do something after everything else; then tell what came of it."""

    def close(self) -> None: ...


class Host(Clock, Protocol):
    """What a runner runs on. Everything that it calls, it calls one at a time."""

    def worker(self, name: str) -> Works: ...

    def send(self, to: int, message: Message, within_s: float, told: Told) -> None: ...

    def rest(self) -> None:
        """Nothing will be done for a while: give back what is not needed meanwhile."""


class EventLoop:
    """A host on the running event loop.

    Whatever goes wrong in code that the loop calls is handed to ``failed``: nothing is only
    printed. What a stranger's connection causes is not: transports deal with that.
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
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[..., Any], *arguments: Any) -> Handle:
        return self._loop.call_at(when, callback, *arguments)

    def worker(self, name: str) -> Works:
        return Worker(name)

    def send(self, to: int, message: Message, within_s: float, told: Told) -> None:
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
        give_back_memory()

    async def linger(self, within_s: float) -> None:
        if self._sending:
            await asyncio.wait(self._sending, timeout=within_s)

    async def close(self) -> None:
        """Give up what is on its way, and listen no more."""
        for task in tuple(self._sending):
            task.cancel()
        await self._transport.close()
        self._loop.set_exception_handler(self._before)
