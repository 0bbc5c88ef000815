"""`joulemesh metrics` lists every loss and every metric that a scenario can name."""

from __future__ import annotations

import json

import pytest

from joulemesh.cli.studies import metrics
from joulemesh.registries import LOSSES, METRICS


def test_every_loss_and_metric_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    metrics(None, json=True)
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["losses"]] == list(LOSSES.names())
    assert [one["name"] for one in found["metrics"]] == list(METRICS.names())
    by_name = {one["name"]: one for one in found["metrics"]}
    assert (by_name["rmse"]["better"], by_name["rmse"]["targets"]) == ("lower", "numbers")
    assert by_name["token_accuracy"]["unit"] == "%"


def test_the_table_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    metrics(None, json=False)
    said = capsys.readouterr().out
    assert all(name in said for name in (*LOSSES.names(), *METRICS.names()))
