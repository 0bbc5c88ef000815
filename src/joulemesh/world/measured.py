"""Links with measured rates, from a file, in place of path loss and gains."""

from __future__ import annotations

__all__ = ["MeasuredLinks", "measured_links"]

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import unit_of
from joulemesh.scenario import Scenario
from joulemesh.tables import number_column, read_links, read_table
from joulemesh.world.devices import DeviceArrays
from joulemesh.world.intervals import LINK_FIGURES, Intervals, deviation
from joulemesh.world.links import LinkCosts, require_usable_links
from joulemesh.world.topology import Graph

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MeasuredLinks:
    """What the links of a graph cost as measured.

    Attributes:
        costs: of one bit, in the order of the graph's links.
        loss: float64 [E, 2]: share of packets that is lost, forward and backward; None where it
            was not measured.
    """

    costs: LinkCosts
    loss: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a file that hold for each direction of each link: int64 [E, 2]."""

    path: str
    columns: dict[str, list[str]]
    row: IntArray
    shift: float

    def column(self, name: str, *, zero: bool = False, sign: int = 1) -> FloatArray | None:
        """float64 [E, 2]: a column as it is planned with; None if the file has none."""
        if name not in self.columns or not any(self.columns[name]):
            return None
        values = number_column(self.columns, name, self.path, unit_of(name))
        wrong = (values < 0) | ((values == 0) & (not zero))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ScenarioError(
                f"{self.path}, row {row + 2}: {name} = {values[row]:g} must be "
                f"{'at least' if zero else 'above'} 0; correct it or drop the column"
            )
        planned = self.shift and name in LINK_FIGURES
        spread = deviation(self.columns, name, values, self.path) if planned else None
        if spread is not None:
            values = values + sign * self.shift * spread
            if not (values > 0).all():
                row = int(np.argmin(values))
                raise ScenarioError(
                    f"{self.path}, row {row + 2}: the interval of {name} is so wide that nothing "
                    "of it is left at plan.safety; measure it again, for longer, or lower "
                    "plan.safety"
                )
        return np.asarray(values[self.row])

    def energy(self, scenario: Scenario, column: str, field: str) -> FloatArray | None:
        """float64 [E, 2]: a column of joules per bit; None if the file has none."""
        found = self.column(column, zero=column.startswith("receive"))
        other = "receive_power_w" if field == "receive_j_per_bit" else field
        for name in (field, other):
            given = getattr(scenario.devices, name) is not None
            if found is not None and given and scenario.origin(f"devices.{name}").kind != "profile":
                raise ScenarioError(
                    f"{self.path} has a column {column!r} and devices.{name} is given; one of "
                    "them would be ignored: drop one"
                )
        return found


def measured_links(scenario: Scenario, graph: Graph, devices: DeviceArrays) -> MeasuredLinks | None:
    """The links of ``network.links`` on a graph; None if no file is given.

    A row is of one direction, i to j; where the file has none of the other, it counts for both.
    Joules per bit that the file does not have are those of the devices.
    """
    path = scenario.network.links
    if path is None:
        return None
    columns = read_table(path)
    rows = _Rows(path, columns, _rows_of(columns, path, graph), Intervals(scenario).shift)
    rate = rows.column("rate_bps", sign=-1)
    if rate is None:
        raise ScenarioError(f"{path} has no column 'rate_bps'; add it (bits per second)")
    seconds, ends = 1.0 / rate, graph.edges
    sent = rows.energy(scenario, "energy_j_per_bit", "send_j_per_bit")
    if sent is None and devices.send_j_per_bit is not None:
        sent = devices.send_j_per_bit[ends]
    elif sent is None:
        sent = devices.transmit_power_w[ends] * seconds
    heard = rows.energy(scenario, "receive_j_per_bit", "receive_j_per_bit")
    if heard is None and devices.receive_j_per_bit is not None:
        heard = devices.receive_j_per_bit[ends[:, ::-1]]
    elif heard is None and devices.receive_power_w is not None:
        heard = devices.receive_power_w[ends[:, ::-1]] * seconds
    costs = LinkCosts(
        seconds[:, 0],
        seconds[:, 1],
        sent[:, 0],
        sent[:, 1],
        None if heard is None else heard[:, 0],
        None if heard is None else heard[:, 1],
    )
    require_usable_links(ends, costs, lambda link: f"in {path}; correct its row")
    return MeasuredLinks(costs, rows.column("loss", zero=True))


def _rows_of(columns: dict[str, list[str]], path: str, graph: Graph) -> IntArray:
    """int64 [E, 2]: the row of each direction of each link."""
    ends = read_links(columns, path, graph.devices)
    key = ends[:, 0] * graph.devices + ends[:, 1]
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(np.diff(key[order]) == 0)
    if len(again):
        i, j = ends[order[again[0]]]
        first, second = order[again[0]] + 2, order[again[0] + 1] + 2
        raise ScenarioError(f"{path} has two rows from {i} to {j} ({first} and {second}); keep one")

    def find(start: IntArray, stop: IntArray) -> IntArray:
        wanted = start * graph.devices + stop
        row = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
        return np.where(key[order][row] == wanted, order[row], -1)

    forward = find(graph.edges[:, 0], graph.edges[:, 1])
    backward = find(graph.edges[:, 1], graph.edges[:, 0])
    missing = (forward < 0) & (backward < 0)
    if missing.any():
        i, j = graph.edges[int(np.argmax(missing))]
        raise ScenarioError(
            f"{path} has no row for the link {i}-{j} of the topology; add it (joulemesh calibrate "
            "links measures it), or leave network.topology out, and the file is the topology"
        )
    forward, backward = (
        np.where(forward < 0, backward, forward),
        np.where(backward < 0, forward, backward),
    )
    return np.stack([forward, backward], axis=1)
