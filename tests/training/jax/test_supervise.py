"""A process that is watched: whatever ends it, one line of ours comes last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from joulemesh.training.jax.distributed import Group, _explain, _Killed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot split a process")

TWO = Group("127.0.0.1:4000", 2, 1, timeout_s=3)
THREE = Group("127.0.0.1:4000", 3, 1, timeout_s=3)
RESUME = "`joulemesh run --resume` goes on"
CONNECTED = "[Gloo] Rank 1 is connected to 1 peer ranks. Expected number of peer ranks is : 1\n"
HEAD = (
    "F1116 16:30:42.484668   10654 client.h:80] Terminating process because the JAX distributed "
    "service detected fatal errors. This most likely indicates that another task died; see the "
    "other task logs for more details. absl::Status: "
)
# As JAX 0.10 and 0.11 print them.
CLOSED = (
    f"{CONNECTED}E1116 16:30:29.250013   10565 coordination_service_agent.cc:289] Polled an error "
    f"from coordination service.\n{HEAD}UNAVAILABLE: Failed to send RPC to coordination service. "
    "Either the leader task was preempted/died/restarted unexpectedly.\n"
)
SILENT = (
    f"{CONNECTED}{HEAD}UNAVAILABLE: The following tasks are unhealthy (stopped sending "
    "heartbeats):\n{0}\nThe tasks have crashed. Check the task logs for an earlier error.\n\n"
    "RPC: /xla.coordination.CoordinationService/PollForError\n*** Check failure stack trace: ***\n"
)
FROZEN = (
    f"{CONNECTED}{HEAD}DEADLINE_EXCEEDED: Deadline Exceeded\n\n"
    "RPC: /xla.coordination.CoordinationService/Heartbeat\n"
)
NOBODY = (
    f"{HEAD}DEADLINE_EXCEEDED: Deadline Exceeded\n\n"
    "RPC: /xla.coordination.CoordinationService/RegisterTask\n"
)
OTHER = f"{CONNECTED}F1116 16:30:42.484668   10654 array.cc:12] Check failed: i < size (5 vs. 5)\n"


@pytest.mark.parametrize(
    ("printed", "group", "alone_s", "code", "words"),
    [
        (CLOSED, TWO, None, 1, f"process 0 of this run was lost or has ended; {RESUME}"),
        (FROZEN, THREE, None, 1, f"another process of this run was lost or has ended; {RESUME}"),
        (SILENT.format("2"), THREE, None, 1, "another process of this run was lost or has"),
        (HEAD, TWO, None, 1, f"process 0 of this run was lost or has ended; {RESUME}"),
        (HEAD, THREE, None, 1, f"another process of this run was lost or has ended; {RESUME}"),
        (NOBODY, TWO, 3.1, 2, "the 2 processes did not meet at 127.0.0.1:4000 within 3 s: start"),
        ("", TWO, 3.1, 2, "the 2 processes did not meet at 127.0.0.1:4000 within 3 s: start"),
        (CONNECTED, TWO, 3.1, 2, "the 2 processes did not meet at 127.0.0.1:4000 within 3 s"),
        (CLOSED, TWO, 0.1, 2, "process 0 of this run was lost or has ended before all had met: "),
        (CONNECTED, TWO, None, 1, f"this process was ended by SIGABRT; {RESUME}"),
    ],
)
def test_an_abort_of_the_runtime_gives_one_line(
    printed: str,
    group: Group,
    alone_s: float | None,
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _explain(_Killed(signal.SIGABRT, printed.encode(), alone_s), group, RESUME) == code
    said = capsys.readouterr().err
    assert said.startswith(f"error: {words}")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("alone_s", [None, 0.1, 3.1])
def test_what_is_known_of_a_crash_comes_before_the_last_line(
    alone_s: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _explain(_Killed(signal.SIGABRT, OTHER.encode(), alone_s), TWO, RESUME) == 1
    crash, last = capsys.readouterr().err.splitlines()
    assert crash.endswith("Check failed: i < size (5 vs. 5)")
    assert last == f"error: this process was ended by SIGABRT; {RESUME}"


@pytest.mark.parametrize("alone_s", [None, 3.1])
def test_a_kill_is_nobodys_absence(
    alone_s: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _explain(_Killed(signal.SIGKILL, CONNECTED.encode(), alone_s), TWO, RESUME) == 1
    assert capsys.readouterr().err == f"error: this process was ended by SIGKILL; {RESUME}\n"


CHILD = """
import os, resource, sys
from joulemesh.training.jax.distributed import Group, supervise
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
child = supervise(Group("127.0.0.1:4000", 2, 0), "resume")
assert "GRPC_VERBOSITY" not in os.environ
child.joined()
{}
os.write(2, {!r})
os.abort()
"""


@pytest.mark.parametrize("first", ["runtime", "watcher"])
def test_whoever_notices_first_one_line_comes_last(first: str) -> None:
    leave = "child.leave(1, 'process 1 of this run was lost or has ended; resume')"
    text = CHILD.format(leave if first == "watcher" else "", SILENT.format("1").encode())
    done = subprocess.run(
        [sys.executable, "-c", text],
        # As a deployment sets it, and users do: gRPC then silences all of JAX's C++.
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: process 1 of this run was lost or has ended; resume\n"
    assert done.stdout == ""
