"""How figures and events of a deployment are put in words."""

from __future__ import annotations

from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import Event, history_of
from joulemesh.studio.watching import Glimpse
from joulemesh.views.deployment.charts import event_words
from joulemesh.views.deployment.page import _left, _signed, name_list, share_words
from joulemesh.views.fleet import _clock

NAMES = ("gate", "barn", "mast")


def test_names_and_shares() -> None:
    assert name_list(NAMES) == "gate, barn and mast"
    assert name_list(NAMES, 2) == "gate, barn and 1 more"
    assert [_left(one) for one in (0.25, -1e-12, -0.02)] == [
        "25.0 %",
        "0.0 %",
        "overdrawn by 2.0 %",
    ]
    assert (share_words(0.9), share_words(57.3)) == ("90.0 %", "57.3 times")
    assert [_signed(one) for one in (0.021, -0.3, 0.0)] == ["+2.1 %", "−30.0 %", "±0.0 %"]
    assert [_clock(one) for one in (0.004, -42.0, 7200.0)] == ["exact", "42 s behind", "2 h ahead"]


def test_events() -> None:
    suspected = Event(0, 0, "suspected", {"device": 1, "reason": "no beat"})
    assert event_words(suspected, NAMES) == "suspects barn: no beat"
    assert event_words(Event(0, 0, "melted", {"celsius": 90}), NAMES) == "melted: celsius 90"
    missed = Event(0, 0, "absent", {"missed": [[0, 1], [1, 1], [0, 2]]})
    assert event_words(missed, NAMES) == "goes without barn, mast"
    assert event_words(Event(0, 0, "absent", {"missed": "?"}), ()) == "goes without others"


def test_what_a_device_does() -> None:
    silent, up = history_of((), 0, "gate"), Standing(0, "gate", "training")
    assert Glimpse(up, silent).state == "training"
    assert Glimpse(Standing(0, "gate"), silent, answers=False).state == "not seen"
    assert Glimpse(up, silent, answers=False, heard_at=5.0).state == "silent"
