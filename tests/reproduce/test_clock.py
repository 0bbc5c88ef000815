"""Seconds of compiling, heard from several threads."""

from __future__ import annotations

import time

import pytest

from yan_li_2024 import clock

EVENT = "/jax/core/compile/backend_compile_duration"


def test_programs_compiled_side_by_side_count_each_moment_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    heard = clock.Compilations()
    for now, seconds in ((4.0, 4.0), (5.0, 4.0), (9.0, 2.0), (10.0, 2.5)):  # noqa: B007
        heard.hear(EVENT, seconds)
    assert heard.count == 4
    assert heard.seconds == pytest.approx(8.0)  # from 0 to 5, and from 7 to 10
    now = 11.0
    heard.hear("/jax/core/compile/jaxpr_trace_duration", 11.0)  # within which all of them were
    assert heard.count == 4
    assert heard.seconds == pytest.approx(11.0)
