"""Tables of other simulators, turned into those that a scenario takes.

SkipTrain (github.com/sacs-epfl/SkipTrain, commit 1339be6, folder ``tutorial``) has two kinds:
"energy traces", which despite their name are one row for each kind of phone, and graphs of
decentralizepy. Plato (github.com/TL-System/plato, commit 60d6779) has none: its clients differ by
distributions in its configuration (``simulation_distribution``, ``sleep_simulation``), and no file
says who is there when.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text
from joulemesh.tables import number_column, read_table

_NAME, _ENERGY, _ROUNDS = "Device Name", "Energy (Wh)", "Number of training rounds"
_TOTAL = "total"  # "Training Time LeNet (ms) total", by the model's name
_J_PER_WH = 3600.0


def devices_of_skiptrain(
    source: str | Path, target: str | Path, *, devices: int, steps: int
) -> None:
    """Write a device table (name, step_s, step_j, energy_j) from a table of SkipTrain.

    As in SkipTrain, device i is of the kind in row i modulo the number of rows, and may train as
    many rounds as the column ``Number of training rounds`` says.

    Args:
        source: SkipTrain's CSV file, such as ``tutorial/Energy_traces_CIFAR-10.csv``.
        target: the CSV file to write.
        devices: how many.
        steps: SGD steps of one of SkipTrain's training rounds (``rounds`` in its configuration, 20
            for CIFAR-10), over which its seconds and joules are divided.

    Raises:
        ScenarioError: the file is not such a table.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> head = "Device Name,Training Time CNN (ms) total,Energy (Wh),Number of training rounds"
    >>> _ = (folder / "phones.csv").write_text(f"{head}\\nA,2000,0.01,100\\nB,4000,0.02,50\\n")
    >>> devices_of_skiptrain(folder / "phones.csv", folder / "devices.csv", devices=3, steps=10)
    >>> print((folder / "devices.csv").read_text(), end="")
    name,step_s,step_j,energy_j
    A-0,0.2,3.6,3600.0
    B-1,0.4,7.2,3600.0
    A-2,0.2,3.6,3600.0
    """
    columns = read_table(source)
    total = next((name for name in columns if name.lower().endswith(f"(ms) {_TOTAL}")), _TOTAL)
    if _NAME not in columns:
        raise ScenarioError(
            f"{source} has no column {_NAME!r}: it is no table of SkipTrain's devices; it has "
            f"{', '.join(columns)[:120]}"
        )
    round_s = number_column(columns, total, source) / 1000.0
    round_j = number_column(columns, _ENERGY, source) * _J_PER_WH
    energy_j = round_j * number_column(columns, _ROUNDS, source)
    if steps < 1 or devices < 1:
        raise ScenarioError(f"{devices} devices and {steps} steps: give at least 1 of each")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "step_s", "step_j", "energy_j"))
    for device in range(devices):
        row = device % len(round_s)
        name = f"{'-'.join(columns[_NAME][row].split())}-{device}"
        figures = (round_s[row] / steps, round_j[row] / steps, energy_j[row])
        writer.writerow((name, *(float(f"{figure:.12g}") for figure in figures)))
    write_text(Path(target), text.getvalue())


def links_of_decentralizepy(source: str | Path, target: str | Path) -> None:
    """Write a table of links (i, j) for ``network.topology`` from a graph of decentralizepy.

    Args:
        source: a text file whose first line is the number of nodes, and each further one a pair.
        target: the CSV file to write.

    Raises:
        ScenarioError: the file is not such a graph.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "graph.txt").write_text("3\\n0 1\\n1 0\\n2 1\\n1 2\\n")
    >>> links_of_decentralizepy(folder / "graph.txt", folder / "links.csv")
    >>> (folder / "links.csv").read_text()
    'i,j\\n0,1\\n1,2\\n'
    """
    wrong = f"{source} is no graph of decentralizepy: a number of nodes, then a pair on each line"
    try:
        text = Path(source).read_bytes().decode("utf-8")
        count, *pairs = (tuple(map(int, line.split())) for line in text.splitlines() if line)
        ends = np.array(pairs, np.int64)
    except OSError as error:
        raise ScenarioError(f"cannot read {source}: {error.strerror}; check the path") from None
    except ValueError:
        raise ScenarioError(wrong) from None
    if len(count) != 1 or ends.ndim != 2 or ends.shape[1] != 2:
        raise ScenarioError(wrong)
    if (ends < 0).any() or (ends >= count[0]).any() or (ends[:, 0] == ends[:, 1]).any():
        raise ScenarioError(f"{wrong}; a pair names two different nodes of 0..{count[0] - 1}")
    links = np.unique(np.sort(ends, axis=1), axis=0)
    write_text(Path(target), "i,j\n" + "".join(f"{i},{j}\n" for i, j in links.tolist()))
