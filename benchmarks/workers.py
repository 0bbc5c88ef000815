"""The parent's side: contenders as child processes that run blocks in turn."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.common import ROOT
from benchmarks.serve import MARK

START_LIMIT_S = 600.0
BLOCK_LIMIT_S = 600.0


class Worker:
    """A child process that is started once and then runs timed blocks when told to.

    While one contender runs a block the others wait for their line: start-up, compilation and
    warm-up are outside the blocks, and a noisy moment of the machine hits all contenders alike.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # so that what it starts ends with it
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.versions: dict[str, str] = self._answer(START_LIMIT_S)["versions"]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                self._answers.put(line.removeprefix(MARK))
        self._answers.put("")

    def _answer(self, limit_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=limit_s)
        except queue.Empty:
            self.close()
            raise RuntimeError(f"no answer within {limit_s:.0f} s") from None
        if not line:
            raise RuntimeError(self._reason())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _reason(self) -> str:
        """The last line that the process wrote before it ended."""
        self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1][:300] if lines else f"ended with status {self._process.returncode}"

    def block(self, request: str = "") -> dict[str, Any]:
        """Run one block: its seconds, device-steps and whatever else the contender tells."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(self._reason()) from None
        return self._answer(BLOCK_LIMIT_S)

    def close(self) -> None:
        """End the process and all that it started."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rate(result: Mapping[str, Any]) -> float:
    """Device-steps per second of a block."""
    return float(result["device_steps"]) / float(result["seconds"])
