"""The method that the page about a method of one's own shows; tests/docs carries the page out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "own-method.md"


def test_the_example_does_what_it_says() -> None:
    import jax.numpy as jnp

    method = re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(compile(method, "lazy.py", "exec"), names)
    # Three devices in a row hold 0, 3 and 9; half a step towards (3), (0 + 9)/2 and (3).
    share = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    exchange = names["lazy_exchange"](share, 0.5)  # type: ignore[operator]
    moved = exchange.apply({"w": jnp.array([[0.0], [3.0], [9.0]])}, (), None, None)[0]
    assert moved["w"].ravel().tolist() == [1.5, 3.75, 6.0]
