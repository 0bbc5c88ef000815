"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from joulemesh.base import optional as own_code
from tests import shapes

# Tests compile the same programs again and again, many in processes of their own: each is kept.
KEPT = Path(__file__).parents[1] / ".pytest_cache" / "xla"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(KEPT))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Check the shapes of arrays wherever objects that state them are made."""
    shapes.watch()


@pytest.fixture(autouse=True)
def _no_files_of_another_test() -> Iterator[None]:
    """Forget the user's files that a test runs: runs record them."""
    before = set(own_code._FILES)
    yield
    own_code._FILES.intersection_update(before)


@pytest.fixture
def own_methods() -> Iterator[None]:
    """Forget, at the end, the methods that a test registers."""
    from joulemesh.methods.base import METHODS

    with METHODS.scoped():
        yield
