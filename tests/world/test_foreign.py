"""Tables of other simulators."""

from __future__ import annotations

from pathlib import Path

import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.world.foreign import devices_of_skiptrain, links_of_decentralizepy

# The columns of SkipTrain's own files, with figures of our own.
PHONES = (
    "\ufeffDevice Name,Inference time MobileNet v2 CPU-F (ms),Inference time LeNet (ms),"
    "Training time LeNet (ms),Training Time LeNet (ms) total,Max Power consumption (W),"
    "Energy (Wh),Battery capacity (Wh),Battery capacity for training,Number of training rounds\n"
    "Phone (one),10,1,2,1280,9,0.0032,20,2,625\n"
    "Phone two,20,2,4,2560,4.5,0.0032,10,1,312\n"
)


def test_a_table_of_skiptrain_makes_a_scenario(tmp_path: Path) -> None:
    source, target = tmp_path / "phones.csv", tmp_path / "devices.csv"
    source.write_text(PHONES, "utf-8")
    devices_of_skiptrain(source, target, devices=5, steps=20)
    scenario = joulemesh.Scenario(devices={"table": str(target)}, budget={"deadline_s": 5.0})
    plan = joulemesh.plan(scenario)
    assert plan.names[:3] == ("Phone-(one)-0", "Phone-two-1", "Phone-(one)-2")
    devices = plan.world.devices
    assert devices.round_latency_s[:2].tolist() == pytest.approx([0.064, 0.128])
    assert devices.round_energy_j.tolist() == pytest.approx([0.576] * 5)
    assert devices.energy_budget_j[:2].tolist() == pytest.approx([0.0032 * 3600 * 625, 3594.24])


def test_a_graph_of_decentralizepy_is_a_topology(tmp_path: Path) -> None:
    source, target = tmp_path / "ring.txt", tmp_path / "links.csv"
    source.write_text("4\n" + "".join(f"{i} {(i + 1) % 4}\n{(i + 1) % 4} {i}\n" for i in range(4)))
    links_of_decentralizepy(source, target)
    scenario = joulemesh.Scenario(devices={"count": 4}, network={"topology": str(target)})
    assert joulemesh.plan(scenario).world.graph.edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]


@pytest.mark.parametrize("text", ["", "a\n", "3\n0 1 2\n", "3\n0 3\n", "3\n1 1\n", "3 4\n0 1\n"])
def test_other_files_are_no_graphs(tmp_path: Path, text: str) -> None:
    (tmp_path / "graph.txt").write_text(text)
    with pytest.raises(ScenarioError, match="is no graph of decentralizepy"):
        links_of_decentralizepy(tmp_path / "graph.txt", tmp_path / "links.csv")
    assert not (tmp_path / "links.csv").exists()


def test_other_tables_are_not_skiptrains(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ScenarioError, match="it is no table of SkipTrain's devices"):
        devices_of_skiptrain(tmp_path / "t.csv", tmp_path / "o.csv", devices=2, steps=1)
    assert len(list(tmp_path.iterdir())) == 1
