"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import joulemesh.deploy  # noqa: F401 - before any test imports gRPC
from joulemesh import own_code
from tests import shapes

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
    from joulemesh.methods.registry import METHODS

    with METHODS.scoped():
        yield
