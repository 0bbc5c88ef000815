"""How a fleet stands: one record for each device, and one for each link that was probed."""

from __future__ import annotations

__all__ = ["Probe", "Standing"]

from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    """How one device stands at the moment.

    Attributes:
        device: its number.
        name: what the roster calls it.
        phase: what it is doing, in a word of `messages.Phase`; empty if it does not answer.
        view: the newest view that it has installed.
        iteration: the last that it has committed.
        iterations: how many the plan has.
        spent_j: joules metered so far.
        planned_j: joules that the plan gives it up to ``iteration``.
        battery_j: joules that it may spend in all.
        elapsed_s: seconds since it began.
        planned_s: seconds that the plan takes up to ``iteration``.
        waiting: names of the devices for whose messages it waits.
        accuracy: the last that it measured; None if it has measured none.
        trouble: why nothing is known of it, or what it complains of.
        late: (of how many iterations since its start, how many took longer than the deadline).
        worst: how many times the deadline the longest of them took.
    """

    device: int
    name: str
    phase: str = ""
    view: int = 0
    iteration: int = 0
    iterations: int = 0
    spent_j: float = 0.0
    planned_j: float = 0.0
    battery_j: float = 0.0
    elapsed_s: float = 0.0
    planned_s: float = 0.0
    waiting: tuple[str, ...] = ()
    accuracy: float | None = None
    trouble: str = ""
    late: tuple[int, int] = (0, 0)
    worst: float = 0.0


@dataclass(frozen=True)
class Probe:
    """What was found on the way from one device to another.

    Attributes:
        here: name of the device, or of the laptop, that probed.
        there: name of the device that was probed.
        address: its host and port.
        reachable: did it answer?
        certificate: what was found of its certificate: "valid until 2027-11-16", or why it was
            refused; empty if it was not seen.
        clock_s: by how many seconds its clock is ahead; None if it is not known.
        version: of Joulemesh there; empty if it is not known.
        rate_bps: bits per second that were measured; None if they were not.
        planned_bps: bits per second by the plan; None where the plan does not use the link.
        trouble: what is wrong, and what to do about it; empty if nothing is.
    """

    here: str
    there: str
    address: str
    reachable: bool
    certificate: str = ""
    clock_s: float | None = None
    version: str = ""
    rate_bps: float | None = None
    planned_bps: float | None = None
    trouble: str = ""
