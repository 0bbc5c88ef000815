"""While one batch trains on an accelerator, the next one's programs are compiled."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from joulemesh.study import learn


class _Engine:
    def __init__(self, batch: Any, made: list[Any]) -> None:
        self.batch, self.made = batch, made
        self.compiled = threading.Event()

    def compile(self) -> None:
        self.made.append((self.batch, threading.current_thread() is threading.main_thread()))
        self.compiled.set()


def prepared(batches: list[Any], in_turn: bool) -> Any:
    made: list[Any] = []
    engines: dict[Any, _Engine] = {batch: _Engine(batch, made) for batch in batches}
    return learn._Prepared(batches, engines.__getitem__, in_turn=in_turn), engines, made  # type: ignore[arg-type]


def test_the_next_is_compiled_while_one_trains() -> None:
    turn, engines, made = prepared(["a", "b", "c"], False)
    with turn:
        assert next(turn) is engines["a"]
        assert engines["b"].compiled.wait(60)  # though nobody has asked for it
        assert [next(turn), next(turn)] == [engines["b"], engines["c"]]
    assert made == [("a", False), ("b", False), ("c", False)]


def test_a_cpu_compiles_nothing_beside_training() -> None:
    turn, engines, made = prepared(["a", "b"], True)
    with turn:
        assert [next(turn), next(turn)] == [engines["a"], engines["b"]]
    assert made == []


def test_what_goes_wrong_in_preparing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, engines, _ = prepared(["a", "b"], False)
    monkeypatch.setattr(engines["b"], "compile", lambda: 1 / 0)
    with turn:
        next(turn)
        with pytest.raises(ZeroDivisionError):
            next(turn)
