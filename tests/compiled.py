"""How many programs a jitted function has compiled."""

from __future__ import annotations

from typing import Any


def compiled_programs(function: Any) -> int:
    """Programs in the cache of a function that `jax.jit` made, or of one that wraps it."""
    return int(getattr(function, "jitted", function)._cache_size())
