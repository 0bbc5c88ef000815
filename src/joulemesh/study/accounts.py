"""A run's account: settled as it goes, and kept in its folder (``plan.npz``, ``ledger.csv``)."""

from __future__ import annotations

__all__ = ["Pricing", "load_account", "save_account", "write_ledger"]

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from joulemesh.base.arrays import open_arrays
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_whole
from joulemesh.methods.setting import MethodAccount
from joulemesh.planning.export import load_plan, origins_of, stored_record
from joulemesh.planning.ground import Workload
from joulemesh.planning.plan import Account, Plan, ledger_of
from joulemesh.scenario import Scenario
from joulemesh.training.arrays import tree_flatten, tree_leaves
from joulemesh.training.checkpoint import BESIDE
from joulemesh.training.driver import TrainedChunk

_SENT = f"{BESIDE}sent."
_ARRAYS = (
    "rounds",
    "active",
    "exchanged",
    "iteration_j",
    "latency_s",
    "energy_budget_j",
    "compute_total_j",
    "transmit_total_j",
    "receive_total_j",
    "idle_total_j",
    "bits",
    "server_j",
)


class Pricing:
    """Joules and seconds of a run: known before it, or settled by what was sent in it.

    A sink; what every chunk sent is remembered where the price depends on it.

    Args:
        reserve: what is known before training; where the price depends on it, the most it can be.
        settle: the account of what was sent, a pytree of [iterations, seeds, ...].
    """

    def __init__(self, reserve: Account, settle: Callable[[Any], Account] | None = None) -> None:
        self.reserve, self._settle = reserve, settle
        self._before: list[Any] = []  # leaves of what was sent before this process
        self._sent: list[Any] = []
        self._settled: tuple[int, Account] | None = None

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Remember what a chunk sent."""
        if self._settle is not None:
            self._sent.append(chunk.trace.sent)

    def settled(self, account: Account) -> None:
        """Take the account of a finished run as it was kept."""
        if self._settle is not None:
            self._settled = 0, account

    @property
    def account(self) -> Account:
        """The account of the run so far; of iterations to come, if their price is known."""
        if self._settle is None or not (self._sent or self._settled):
            return self.reserve
        if self._settled is None or self._settled[0] != len(self._sent):
            self._settled = len(self._sent), self._settle(self._joined())
        return self._settled[1]

    def _joined(self) -> Any:
        made = tree_flatten(self._sent[0])[1]
        parts = [tree_leaves(sent) for sent in self._sent]
        parts = [self._before, *parts] if self._before else parts
        leaves = [np.concatenate(leaf) for leaf in zip(*parts, strict=True)]
        return made(leaves)

    def beside(self) -> dict[str, Any]:
        """What must be kept beside a checkpoint to settle later."""
        if self._settle is None or not self._sent:
            return {}
        leaves = tree_leaves(self._joined())
        return {f"{_SENT}{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}

    def restore(self, beside: Mapping[str, Any]) -> None:
        """Take up what was kept beside a checkpoint."""
        count = sum(name.startswith(_SENT) for name in beside)
        self._before = [beside[f"{_SENT}{k}"] for k in range(count)]


def save_account(account: Account, path: Path) -> None:
    """Write an account with all its arrays, whole or not at all."""
    if isinstance(account, Plan):
        account.save(path)
        return
    assert isinstance(account, MethodAccount)
    record = {
        "method": account.method,
        "equal": account.equal,
        "notes": list(account.notes),
        "parameters": account.work.parameters,
        "model_bits": account.work.model_bits,
        "operations": account.work.operations,
        "origins": {name: str(origin) for name, origin in account.scenario.origins().items()},
    }
    arrays: dict[str, Any] = {name: np.asarray(getattr(account, name)) for name in _ARRAYS}
    arrays["plan"] = np.array(json.dumps(record, allow_nan=False))
    arrays["round_samples"] = account.work.round_samples
    write_whole(path, lambda draft: np.savez(draft, allow_pickle=False, **arrays))


def load_account(path: Path, scenario: Scenario) -> Account:
    """The account that `save_account` wrote, with the figures that it holds.

    Args:
        path: of the file.
        scenario: that the run was made from.

    Raises:
        ScenarioError: the file holds no account of this scenario.
    """
    try:
        with open_arrays(path) as file:
            record = stored_record(file)
            if "method" in record:
                stored: dict[str, Any] = {name: file.get(name) for name in _ARRAYS}
                if stored["transmit_total_j"] is None:  # written by an earlier version
                    stored["transmit_total_j"] = file["exchange_total_j"]
                    for name in ("receive_total_j", "idle_total_j"):
                        stored[name] = np.zeros_like(stored["transmit_total_j"])
                sizes = int(record["parameters"]), float(record["model_bits"])
                work = Workload(*sizes, file["round_samples"], record.get("operations"))
                devices = stored["rounds"].shape[1:]
                if devices != (scenario.devices.count,):
                    raise ValueError(f"it is of {devices} devices")
                return MethodAccount(
                    str(record["method"]),
                    str(record["equal"]),
                    scenario.with_origins(origins_of(record)),
                    work,
                    **stored,
                    notes=tuple(map(str, record["notes"])),
                )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} holds no account of this scenario ({reason}); run it again"
        ) from None
    return load_plan(path, scenario)


def write_ledger(account: Account, path: Path) -> None:
    """Write one row for each device: battery, what it went on, rounds; of a plan, what binds."""
    columns = ledger_of(account)
    figures = [getattr(account, name) for name in columns]
    rounds = account.rounds.sum(axis=0, dtype=np.int64)
    binding = account.binding if isinstance(account, Plan) else None

    def write(draft: IO[bytes]) -> None:
        text = io.TextIOWrapper(draft, "utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        more = [] if binding is None else ["binding"]
        writer.writerow(["device", *columns, "rounds", *more])
        for i in range(len(rounds)):
            own = [float(column[i]) for column in figures]
            more = [] if binding is None else [str(binding[i])]
            writer.writerow([i, *own, int(rounds[i]), *more])
        text.detach()  # flushes, and leaves the draft open

    write_whole(path, write)
