"""A thread that does one thing after another while the event loop goes on."""

from __future__ import annotations

__all__ = ["Worker"]

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Job = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class Worker:
    """Does what it is given, in order, in a thread of its own.

    The thread does not keep the process alive: a long training must not delay the end of a node
    whose state is saved.

    Args:
        name: of the thread.

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
        """Do something after everything else; then tell the event loop what came of it.

        Args:
            action: called in the thread.
            then: called on the event loop with what it returned, or with what it raised.
        """
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
