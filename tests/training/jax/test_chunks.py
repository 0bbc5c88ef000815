from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.training import Schedule
from joulemesh.training.jax.inputs import chunk_schedule
from joulemesh.training.jax.layout import Layout, stride_of

LONGEST = st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(any).map(np.array)


@given(LONGEST, st.floats(0, 20))
def test_no_stride_costs_much_less(longest: NDArray[np.int64], dear: float) -> None:
    def cost(stride: int) -> float:
        return float(np.maximum(1, -(-longest // stride)).sum() * (stride + dear))

    chosen = stride_of(longest, dear)
    least = min(cost(other) for other in range(1, longest.max() + 1))
    assert cost(chosen) <= 1.05 * least + 1e-9
    assert all(cost(smaller) > 1.05 * least - 1e-9 for smaller in range(1, chosen))


@given(LONGEST, st.integers(0, 7), st.integers(1, 8), st.data())
def test_segments_cover_every_step_once_and_end_every_iteration_once(
    longest: NDArray[np.int64], stride: int, chunk: int, data: st.DataObject
) -> None:
    n = len(longest)
    start = data.draw(st.integers(0, n - 1))
    stop = min(n, start + chunk)
    schedule = Schedule(longest[:, None])
    layout = Layout.deal(np.ones(1), 1, 1)
    made, segments, ends = chunk_schedule(
        schedule, layout, longest, start, stop, chunk=chunk, stride=stride, dtype=np.float32
    )
    assert len(segments.last) == int(ends[-1]) + 1
    assert segments.last.sum() == stop - start
    assert segments.last[ends].all()
    assert made.rounds.shape == (chunk, 1)
    for number in range(stop - start):
        mine = np.flatnonzero(segments.iteration == number)
        assert mine[-1] == ends[number]
        if stride:
            assert segments.step[mine].tolist() == [stride * k for k in range(len(mine))]
            assert stride * (len(mine) - 1) < max(1, longest[start + number]) <= stride * len(mine)
        else:
            assert len(mine) == 1
