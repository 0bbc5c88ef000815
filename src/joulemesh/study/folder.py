"""The run folder: everything about one run, each file whole, verified, and able to travel.

scenario.toml  inputs/  plan.npz  labels.npz  versions.json      written at the start
metrics.csv  timings.csv  checkpoint/                            after every chunk
ledger.csv  model.safetensors  result.json  report.html          at the end
settled.npz    for a method whose price depends on its training  at the end
manifest.jsonl                                                   after each of these: their digests

The manifest decides: a run has begun, has come so far, or is finished when a commit says so, and
what a commit names is verified before it is used.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import (
    DISK,
    MANIFEST,
    ArrayFile,
    Commit,
    FolderLock,
    GrowingFile,
    Manifest,
    ahead_of,
    digest_of,
    make_folder,
    open_arrays,
    read_json,
    strangers_in,
    sweep,
    write_bytes,
    write_text,
    write_whole,
)
from joulemesh.base.optional import files_run
from joulemesh.data import Dataset, Partition
from joulemesh.data.dataset import dataset_words
from joulemesh.data.partition import labelled_devices
from joulemesh.methods.setting import MethodAccount
from joulemesh.metrics import reported
from joulemesh.models.curves import COUNTS, column_names
from joulemesh.planning.export import load_plan, origins_of, stored_record
from joulemesh.planning.ground import Workload
from joulemesh.planning.plan import Account, Plan, ledger_of
from joulemesh.scenario import Scenario
from joulemesh.study.identity import FOLDER as INPUTS
from joulemesh.study.identity import difference, keep_inputs, portable
from joulemesh.study.request import RunRequest
from joulemesh.study.result import ADAPTIVE, Chunk, Result, metrics
from joulemesh.training.arrays import tree_flatten, tree_leaves
from joulemesh.training.checkpoint import BESIDE
from joulemesh.training.learner import TrainedChunk
from joulemesh.training.tensors import named_leaves
from joulemesh.training.trace import Trace


def trace_of(text: str, seeds: tuple[int, ...], dtype: Any, score: str = "accuracy") -> Trace:
    """The evaluations in the text of ``metrics.csv``; exactly as they were."""
    # Columns between those of every run and the costs are of further metrics.
    rows = list(csv.DictReader(io.StringIO(text)))
    mine = [[r for r in rows if int(r["seed"]) == seed] for seed in seeds]
    iteration = np.array([int(r["iteration"]) for r in mine[0]], np.int64)

    def column(name: str, kind: Any) -> Any:
        values = [[float(r[name]) for r in part] for part in mine]
        return np.array(values, kind).reshape(len(seeds), len(iteration)).T

    always = column_names((), score)
    curves = {name: column(name, dtype) for name in always}
    known = {"seed", "iteration", "energy_j", "time_s", *always, *COUNTS}
    own = {name: column(name, dtype) for name in (rows[0] if rows else ()) if name not in known}
    counts = {name: column(name, np.int64) for name in COUNTS}
    return Trace.of({"iteration": iteration, **curves, **counts}, score=score, own=own)


def costs_of(text: str, seeds: tuple[int, ...]) -> tuple[Any, Any]:
    """Joules and seconds after each evaluation in the text of ``metrics.csv``."""
    rows = list(csv.DictReader(io.StringIO(text)))
    found = [
        np.array([[float(r[name]) for r in rows if int(r["seed"]) == seed] for seed in seeds]).T
        for name in ("energy_j", "time_s")
    ]
    alike = all((costs == costs[:, :1]).all() for costs in found)
    joules, seconds = (costs[:, 0] for costs in found) if alike else found
    return joules, seconds


def flat(record: dict[str, Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            texts |= {key: str(item) for key, item in value.items()}
        else:
            texts[name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return texts


def safetensors(params: Any) -> bytes:
    """Parameters in the safetensors format, named by their path in the tree."""
    from safetensors.numpy import save

    data: bytes = save(named_leaves(params))
    return data


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
    """Joules and seconds of a run: known before it, or settled by what was sent in it."""

    # A sink; what every chunk sent is remembered where the price depends on it.

    def __init__(self, reserve: Account, settle: Callable[[Any], Account] | None = None) -> None:
        self.reserve, self._settle = reserve, settle
        self._before: list[Any] = []  # leaves of what was sent before this process
        self._sent: list[Any] = []
        self._settled: tuple[int, Account] | None = None

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
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
    """The account that `save_account` wrote, with the figures that it holds."""
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


START = ("scenario.toml", "plan.npz", "labels.npz", "versions.json")
SETTLED = "settled.npz"

_LOG = logging.getLogger("joulemesh")
_GROWING = ("metrics.csv", "timings.csv")
_END = ("ledger.csv", "model.safetensors", "result.json", "report.html")
_OWN = ["checkpoint/", f"{INPUTS}/", *START, *_GROWING, *_END, SETTLED]
_KEPT = 2  # checkpoints


def free_folder(base: Path, name: str) -> Path:
    """The first of ``base/name-001``, ``-002``, … that does not exist."""
    return next(p for k in range(1, 10**6) if not (p := base / f"{name}-{k:03d}").exists())


class RunFolder:
    """One run on disk: to be looked at, verified before use, and to be begun, taken up and kept."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = Manifest(self.path)
        self._growing: dict[str, GrowingFile] = {}

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def started(self) -> bool:
        return bool(self.manifest.commits)

    @property
    def finished(self) -> bool:
        return self.started and self.manifest.newest.facts.get("stage") == "finished"

    @property
    def completed(self) -> int:
        return int(self.manifest.newest.facts["completed"]) if self.started else 0

    def refuse_damage(self, names: Iterable[str] | None = None, *, remedy: str) -> None:
        """Refuse to go on if a file of the newest commit is not what was committed."""
        damaged = self.manifest.damage(self.manifest.newest, names)
        for name, fault in damaged.items():
            more = f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
            raise ScenarioError(f"{self.path / name} is damaged: {fault}{more}; {remedy}")

    def require_started(self) -> None:
        """Refuse a folder without a run, or one whose start is damaged."""
        if not self.started:
            fault = f" ({MANIFEST}: {self.manifest.fault})" if self.manifest.fault else ""
            raise ScenarioError(
                f"{self.path} is not a run folder: it has no readable {MANIFEST}{fault}; name one"
            )
        lacking = [name for name in START if name not in self.manifest.newest.files]
        if lacking:  # a comparison has a manifest, too
            raise ScenarioError(
                f"{self.path} is not a run folder: its {MANIFEST} names no {lacking[0]}; name one"
            )
        inputs = [name for name in self.manifest.newest.files if name.startswith(f"{INPUTS}/")]
        self.refuse_damage(
            [*START, *inputs], remedy="restore it from a copy, or run the scenario again"
        )

    def require_current(self) -> None:
        """Refuse a folder with a damaged manifest, or an old one unless it is in use."""
        # A run that is under way writes ahead of its manifest all the time.
        if self.manifest.fault:
            raise ScenarioError(
                f"{self.path / MANIFEST} is damaged: {self.manifest.fault}; add --resume to go on "
                "from what is intact"
            )
        for name, why in ahead_of(self.manifest).items():
            if not FolderLock.is_held(self.path):
                raise ScenarioError(f"{self.path / name}: {why}")

    def scenario(self) -> Scenario:
        self.require_started()
        with self._arrays("plan.npz") as file:
            origins = origins_of(stored_record(file))
        return Scenario.load(self.path / "scenario.toml").with_origins(origins)

    def start_record(self) -> dict[str, Any]:
        """What ``begin`` wrote of versions, seeds and everything else that decides the bits."""
        self.require_started()
        return self._read_json("versions.json")

    def request(self) -> RunRequest | None:
        """What the run in the folder was asked to do; None if there is none."""
        if not self.started:
            return None
        return RunRequest.read(self.scenario(), self.start_record())

    def require_same(self, request: RunRequest) -> str:
        """Refuse if the finished run is not the one that is asked for, or is damaged."""
        self._require_no_difference(difference(self.start_record(), request.record(None)))
        self.refuse_damage(remedy="restore it from a copy, or run the scenario again")
        return ""

    def require_start(self, start: Mapping[str, Any]) -> None:
        """Refuse if the run in the folder was started with anything else."""
        now = json.loads(json.dumps(start))
        self._require_no_difference(difference(self.start_record(), now))

    def _require_no_difference(self, differs: str | None) -> None:
        if differs:
            raise ScenarioError(
                f"the run in {self.path} is another one: {differs}; resume it as it was started, "
                "or choose another --out"
            )

    def metrics_text(self) -> str:
        """The evaluations that are kept, as ``metrics.csv`` holds them."""
        known = self.manifest.newest.files.get("metrics.csv")
        if known is None:
            return ""
        path = self.path / "metrics.csv"
        self.refuse_damage(["metrics.csv"], remedy="restore it from a copy")
        with path.open("rb") as file:
            return file.read(known.bytes).decode()

    def result(self) -> dict[str, Any] | None:
        if not self.finished:
            return None
        self.refuse_damage(["result.json"], remedy="restore it from a copy")
        return self._read_json("result.json")

    def labels(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Label counts of the devices that the report shows, and the classes' names if any."""
        with self._arrays("labels.npz") as file:
            return np.asarray(file["counts"]), tuple(file["classes"].tolist())

    def account(self) -> Account:
        """The plan that was carried out, or the method's account, with the figures stored."""
        name = SETTLED if SETTLED in self.manifest.newest.files else "plan.npz"
        self.refuse_damage([name], remedy="restore it from a copy, or run the scenario again")
        return load_account(self.path / name, self.scenario())

    @contextmanager
    def _arrays(self, name: str) -> Iterator[ArrayFile]:
        """A file of arrays that this version, or an earlier one, wrote."""
        with self._undamaged(name), open_arrays(self.path / name) as file:
            yield file

    def _read_json(self, name: str) -> dict[str, Any]:
        with self._undamaged(name):
            record = read_json(self.path / name)
            if not isinstance(record, dict):
                raise ValueError("it is no record")
            return record

    @contextmanager
    def _undamaged(self, name: str) -> Iterator[None]:
        try:
            yield
        except ScenarioError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:160]
            raise ScenarioError(
                f"{self.path / name} is damaged: {reason}; restore it from a copy, or run the "
                "scenario again"
            ) from None

    # Beginning, or taking up --------------------------------------------------------------------

    @contextmanager
    def held(self, *, resume: bool) -> Iterator[None]:
        """Make the folder if need be and hold it; another process is told who holds it."""
        make_folder(self.path, remedy="choose another --out")
        with FolderLock(self.path):
            self.manifest = Manifest(self.path)
            strangers = strangers_in(self.manifest)
            if not resume and (self.started or self.manifest.fault or strangers):
                raise ScenarioError(
                    f"{self.path} exists and is not empty; choose another --out, or add --resume "
                    "to go on with the run in it"
                )
            left = {name.split("/")[0] for name in strangers} - {*START, INPUTS}
            if not self.started and (self.manifest.fault or left):
                fault = self.manifest.fault or "it is missing"
                raise ScenarioError(
                    f"{self.path / MANIFEST} is damaged: {fault}; the run cannot be resumed: "
                    "choose another --out"
                )
            sweep(self.path)
            yield

    def begin(
        self,
        account: Account,
        start: Mapping[str, Any],
        data: Dataset,
        partition: Partition,
        *,
        own_model: bool = False,
    ) -> None:
        copies = keep_inputs(
            account.scenario, self.path, data, own_model=own_model, code=files_run()
        )
        save_account(account, self.path / "plan.npz")
        shown = labelled_devices(partition.devices)
        names = data.strata_names()
        counts = partition.histogram(data.strata(), len(names) or data.classes, shown)
        write_whole(
            self.path / "labels.npz",
            lambda draft: np.savez(
                draft, devices=shown, counts=counts, classes=np.array(names, str)
            ),
        )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"name": account.scenario.name, "started": now, **start}
        self._write_json("versions.json", record)
        write_text(self.path / "scenario.toml", portable(account.scenario).to_toml())
        self._commit([*START, *copies], stage="begun", completed=0, owns=_OWN)
        self._open_growing(None)

    def take_up(self) -> int:
        """Find the newest commit whose checkpoint and curves are intact, and go on from it."""
        self.require_started()
        if self.manifest.fault:
            _LOG.warning("%s is damaged: %s", self.path / MANIFEST, self.manifest.fault)
        faults: dict[str, str] = {}
        for commit in reversed(self.manifest.commits):
            own = self._checkpoint_name(int(commit.facts["completed"]))
            found = self.manifest.damage(commit, [own, *_GROWING])
            if not found and (own in commit.files or (commit.number == 0 and not faults)):
                return self._go_back(commit, faults)
            faults |= {name: fault for name, fault in found.items() if name not in faults}
        worst = "; ".join(f"{name}: {fault}" for name, fault in list(faults.items())[:3])
        raise ScenarioError(
            f"no checkpoint of the run in {self.path} is intact ({worst}); "
            "start it again with another --out"
        )

    def _go_back(self, commit: Commit, faults: Mapping[str, str]) -> int:
        completed = int(commit.facts["completed"])
        if faults:
            name, fault = next(iter(faults.items()))
            _LOG.warning(
                "%s is damaged: %s; going on from iteration %d", self.path / name, fault, completed
            )
        self.manifest.go_back(commit)
        self._open_growing(commit)
        left = [n for n in strangers_in(self.manifest) if n.split("/")[0] == self.checkpoint.name]
        self._remove_checkpoints(left)
        return completed

    def _remove_checkpoints(self, names: Sequence[str]) -> None:
        """Remove files for good: a power cut does not bring them back."""
        for name in names:
            DISK.get().remove(self.path / name)
        if names:
            DISK.get().sync_folder(self.checkpoint)

    def _open_growing(self, commit: Commit | None) -> None:
        known = {} if commit is None else commit.files
        self._growing = {name: GrowingFile(self.path / name, known.get(name)) for name in _GROWING}

    # Keeping ------------------------------------------------------------------------------------

    def add_metrics(self, account: Account, trace: Trace, seeds: tuple[int, ...]) -> None:
        """Append evaluations; nothing in them depends on the wall clock."""
        rows, grown = io.StringIO(), self._growing["metrics.csv"]
        writer = csv.writer(rows, lineterminator="\n")
        if not grown.digest.bytes:
            names = column_names(*reported(account.scenario.training))
            writer.writerow(["seed", "iteration", *names, "energy_j", "time_s", *COUNTS])
        for row in metrics(account, trace, seeds):
            writer.writerow(row.values())
        grown.append(rows.getvalue())

    def add_timings(self, setup_s: float, chunks: Sequence[Chunk]) -> None:
        """Append the wall clock of chunks, and of the set-up before the first of a process."""
        grown, lines = self._growing["timings.csv"], []
        if not grown.digest.bytes:
            lines.append("phase,completed,device_steps,wall_s")
        if setup_s:
            lines.append(f"setup,0,0,{setup_s:.6f}")
        lines += [f"chunk,{c.completed},{c.device_steps},{c.wall_s:.6f}" for c in chunks]
        grown.append("".join(f"{line}\n" for line in lines))

    def _checkpoint_name(self, completed: int) -> str:
        return f"{self.checkpoint.name}/{completed}.safetensors"

    def keep(self, completed: int) -> None:
        """Commit a checkpoint that was written, and the curves; drop all but the newest two."""
        names = [self._checkpoint_name(completed)]
        before = [n for n in self.manifest.newest.files if n.startswith(f"{self.checkpoint.name}/")]
        others = sorted((n for n in before if n not in names), key=lambda n: int(Path(n).stem))
        removed = others[: max(len(others) - _KEPT + 1, 0)]
        self._commit([*names, *_GROWING], removed, stage="running", completed=completed)
        self._remove_checkpoints(removed)

    def finish(self, result: Result) -> None:
        write_ledger(result.account, self.path / "ledger.csv")
        settled = np.ndim(result.account.iteration_j) == 2  # what it cost is known only now
        if settled:
            save_account(result.account, self.path / SETTLED)
        write_bytes(self.path / "model.safetensors", safetensors(result.params))
        self._write_json("result.json", result.summary())
        self.write_report(result)
        names = [*_END, *_GROWING, *([SETTLED] if settled else [])]
        self._commit(names, stage="finished", completed=result.account.iterations)

    def save(self, result: Result) -> None:
        """Keep a whole result in this (new) folder; all but the checkpoint."""
        with self.held(resume=False):
            request = RunRequest(
                scenario=result.account.scenario,
                seeds=result.seeds,
                method=None if result.method == ADAPTIVE else result.method,
                equal=getattr(result.account, "equal", None),
            )
            learned = {"dataset": dataset_words(result.dataset.name), "model": result.model}
            start = {**request.record(result.library), "learned": learned}
            self.begin(
                result.account,
                start,
                result.dataset,
                result.partitions[0],
                own_model=result.own_model,
            )
            self.add_metrics(result.account, result.trace, result.seeds)
            self.add_timings(result.setup_s, result.chunks)
            self.finish(result)

    def commit_also(self, names: Iterable[str]) -> None:
        """Take files that were written to a run, or written again, into the manifest."""
        self._commit(names, **self.manifest.newest.facts)

    def _commit(self, names: Iterable[str], removed: Iterable[str] = (), **facts: Any) -> None:
        grown = self._growing
        files = {n: grown[n].digest if n in grown else digest_of(self.path / n) for n in names}
        self.manifest.commit(files, removed=removed, **facts)

    def write_report(self, result: Result) -> None:
        from joulemesh.study.paper import write_run_report

        write_run_report(self.path / "report.html", result, self.start_record())

    def _write_json(self, name: str, value: Any) -> None:
        write_text(self.path / name, json.dumps(value, indent=1) + "\n")
