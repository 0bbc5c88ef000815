"""Tables of a fleet: every device by its name, trouble first, figures never cut."""

from __future__ import annotations

from rich.console import Console

from joulemesh.deploy.operator.standing import Probe, Standing
from joulemesh.views.fleet import (
    check_summary,
    show_check,
    show_status,
    status_summary,
    status_table,
)
from joulemesh.views.terminal import open_console


def standing(device: int, **fields: object) -> Standing:
    given = {"phase": "training", "iteration": 7, "iterations": 20, "spent_j": 1.5, **fields}
    return Standing(device, f"farm-{device:02d}", battery_j=6.0, **given)  # type: ignore[arg-type]


def printed(shown: object, width: int, *, terminal: bool = False) -> str:
    console = Console(width=width, force_terminal=terminal, color_system=None)
    with console.capture() as caught:
        if isinstance(shown, list) and isinstance(shown[0], Probe):
            show_check(shown, console)
        else:
            assert isinstance(shown, list)
            show_status(shown, console)
    return caught.get()


def test_every_device_has_its_name_and_its_figures_at_any_width() -> None:
    fleet = [standing(0), standing(1, waiting=("farm-00",), phase="exchanging")]
    for width in (200, 100, 60):
        text = printed(fleet, width)
        assert "farm-00" in text
        assert "7 / 20" in text
        assert "75.0 %" in text or "battery left" in text.split("not shown")[1]
    assert "waits for farm-00" in printed(fleet, 200)


def test_a_device_that_does_not_answer_says_why() -> None:
    text = printed([standing(0), Standing(1, "barn", trouble="connection refused")], 160)
    assert "no answer" in text
    assert "connection refused" in text
    assert "1 of 2 devices answer" in text


def test_of_a_large_fleet_those_in_trouble_and_behind_are_shown() -> None:
    fleet = [standing(k, iteration=k + 1) for k in range(200)]
    fleet[150] = Standing(150, "mute", trouble="timed out")
    on_screen = printed(fleet, 160, terminal=True)
    assert "mute" in on_screen
    assert "farm-00" in on_screen
    assert "farm-199" not in on_screen
    assert "160 more devices" in on_screen
    assert "farm-199" in printed(fleet, 160)
    console = Console(width=160)
    assert len(console.render_lines(status_table(fleet, console, most_rows=5))) < 15


def test_what_a_device_says_cannot_steer_the_terminal() -> None:
    console = open_console()
    with console.capture() as caught:
        show_status([Standing(0, "a\x1b[2J", trouble="b\x1b[31mc")], console)
        show_check([Probe("a", "b\x1b[2J", "x", False, trouble="\x1b[0m")], console)
    assert "\x1b[2J" not in caught.get()
    assert "\x1b[31m" not in caught.get()


def test_links_in_trouble_come_first_and_slow_ones_are_marked() -> None:
    good = Probe("gate", "barn", "10.0.0.8:7711", True, "until 2027-11-16", 0.0, "1", 9e6, 1e7)
    slow = Probe("gate", "mast", "10.0.0.9:7711", True, "until 2027-11-16", 90.0, "1", 5e6, 1e7)
    dead = Probe("barn", "mast", "10.0.0.9:7711", False, trouble="no route to host")
    lines = printed([good, slow, dead], 160).splitlines()
    where = {word: k for k, line in enumerate(lines) for word in ("no route", "slow", "good")
             if word in line}  # fmt: skip
    assert where["no route"] < where["good"] < where["slow"]
    assert "1 min 30 s ahead" in "\n".join(lines)
    assert check_summary([good, dead]) == "problems on 1 of 2 links, 1 of them unreachable"
    assert check_summary([good, slow]) == "no problem on 2 links"


def test_a_fleet_in_a_line() -> None:
    fleet = [standing(0, iteration=3, planned_j=2.0), standing(1, phase="waiting")]
    assert status_summary(fleet) == (
        "2 of 2 devices answer: 1 training, 1 waiting; iteration 3 to 7 of 20; "
        "3 J metered, 2 J planned so far"
    )
    assert status_summary([Standing(0, "gate")]) == "0 of 1 devices answer"
