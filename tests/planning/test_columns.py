"""The ledger's columns: computing, transmitting, receiving, waiting; together what is spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.methods import build
from joulemesh.methods.setting import Setting, account_of
from joulemesh.planning.plan import COLUMNS

SEND, RECEIVE = 2e-8, 1.5e-8


def priced(**more: Any) -> Scenario:
    fields = {
        "devices.count": 6,
        "devices.send_j_per_bit": SEND,
        "devices.receive_j_per_bit": [RECEIVE * (1 + i) for i in range(6)],
        "plan.iterations": 7,
    }
    return Scenario.preset("adaptive").override({**fields, **more})


def add_up(account: Any) -> bool:
    return bool((sum(getattr(account, name) for name in COLUMNS) == account.spent_j).all())


@pytest.mark.parametrize(
    "scheme", ["tree", "tree-chunked", "ring", "ring-chunked", "gossip", "metropolis"]
)
def test_every_bit_is_paid_by_its_sender_and_its_receiver(scheme: str) -> None:
    plan = joulemesh.plan(priced(**{"plan.aggregation": scheme}))
    sent, heard = np.zeros(6), np.zeros(6)
    for t in range(1, plan.iterations + 1):
        route = plan.route(t)
        assert route is not None
        for _, sender, receiver, bits in route.messages():
            sent[sender] += bits * SEND
            heard[receiver] += bits * RECEIVE * (1 + receiver)
    assert plan.transmit_total_j == pytest.approx(sent, rel=1e-12)
    assert plan.receive_total_j == pytest.approx(heard, rel=1e-12)
    assert plan.exchange_total_j == pytest.approx(sent + heard, rel=1e-12)
    assert add_up(plan)
    assert (plan.margin_j >= 0).all()


def test_without_a_price_receiving_costs_nothing_and_nothing_changes() -> None:
    scenario = Scenario.preset("adaptive")
    plan, free = (
        joulemesh.plan(one)
        for one in (scenario, scenario.override({"devices.receive_j_per_bit": 0.0}))
    )
    assert not plan.receive_total_j.any()
    assert not plan.idle_total_j.any()
    assert (plan.transmit_total_j == plan.exchange_total_j).all()
    assert (plan.rounds == free.rounds).all()
    assert (plan.spent_j == free.spent_j).all()


def test_both_ends_pay_the_same_in_the_papers_accounting() -> None:
    scenario = Scenario.preset("adaptive").override({"plan.accounting": "both-ends"})
    plan = joulemesh.plan(scenario)
    assert plan.transmit_total_j.sum() == pytest.approx(plan.receive_total_j.sum(), rel=1e-12)
    assert add_up(plan)


@pytest.mark.parametrize("name", ["fixed:2", "fedavg:2", "d-psgd", "gossip-learning", "balanced"])
def test_the_account_of_a_method_has_the_same_columns(name: str) -> None:
    setting = Setting(priced(), "batteries")
    account = account_of(setting, build(name, setting))
    assert (account.receive_total_j > 0).all()
    assert add_up(account)
    assert account.spent_j.sum() == pytest.approx(account.iteration_j.sum(), rel=1e-12)
