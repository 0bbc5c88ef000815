"""A node's metrics, read as Prometheus reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.device import listen_on, serve_metrics
from joulemesh.deploy.device.runner import Tally
from joulemesh.deploy.local.local import free_ports
from joulemesh.deploy.operator.standing import Standing


def test_what_is_served_is_openmetrics_and_current() -> None:
    standing = Standing(3, "farm-03", "training", iteration=7, spent_j=1.5, battery_j=9.0)
    tally, (port,) = Tally(), free_ports(1)
    stop = serve_metrics(str(port), lambda: standing, tally)
    try:
        tally.sent(1, 4, 1000)
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        with urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers=accept)) as answer:
            kind, text = answer.headers["Content-Type"], answer.read().decode()
        with pytest.raises(ScenarioError, match=r"cannot listen there .*choose another port"):
            serve_metrics(str(port), lambda: standing, tally)
    finally:
        stop()
    assert "openmetrics-text" in kind
    assert text.endswith("# EOF\n")
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(found["joulemesh_iteration"]) == 7
    assert float(found["joulemesh_spent_joules"]) == 1.5
    assert float(found['joulemesh_sent_bytes_total{neighbour="4"}']) == 1000
    assert float(found['joulemesh_phase{phase="training"}']) == 1
    assert "joulemesh_accuracy" not in found  # nothing was measured


@pytest.mark.parametrize("text", ["", "http", "70000", "localhost:", "9100x"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="is no port: write 9100, or HOST:9100"):
        listen_on(text)


def test_the_dashboard_asks_for_metrics_that_are_served() -> None:
    text = (Path(__file__).parents[2] / "examples/deploy/grafana-dashboard.json").read_text("utf-8")
    board = json.loads(text)
    asked = [query["expr"] for panel in board["panels"] for query in panel["targets"]]
    wanted = {name for one in asked for name in re.findall(r"joulemesh_\w+", one)}
    tally, (port,) = Tally(), free_ports(1)
    tally.sent(1, 4, 1000)
    standing = Standing(3, "farm-03", "training", accuracy=0.5)
    stop = serve_metrics(str(port), lambda: standing, tally)
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            served = {
                line.split("{")[0].split(" ")[0] for line in answer.read().decode().splitlines()
            }
            served |= {f"joulemesh_{way}_bytes_total" for way in ("sent", "received")}
    finally:
        stop()
    assert wanted <= served
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) >= 10
