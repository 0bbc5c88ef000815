"""How much of every kind of file is read: all limits in one place, each with its reason.

Files that others wrote may be far larger than they look, or claim to be. Each reader asks one of
these before it allocates; the reference documentation prints them.
"""

from __future__ import annotations

__all__ = [
    "ARRAY_HEADER",
    "ARRAY_LIST",
    "CACHED",
    "CHECKPOINT_HEADER",
    "DATA",
    "DATA_COLUMNS",
    "DATA_LINE",
    "EVALUATIONS",
    "FLEET",
    "HOST_LIST",
    "JOURNAL",
    "JOURNAL_LINE",
    "KEPT_RUN",
    "LIMITS",
    "MANIFEST_FILE",
    "MANIFEST_LINE",
    "MANIFEST_NAMES",
    "NODE_STATE",
    "PICKLED_BATCH",
    "PLAN",
    "RECORD",
    "RECORD_PARTS",
    "SCENARIO",
    "SOURCE",
    "STUDY_TABLE",
    "TABLE",
    "TABLE_LINE",
    "TARBALL",
    "TARBALL_HEADER",
    "TARBALL_MEMBERS",
    "XZ",
    "Limit",
]

import sys
from dataclasses import dataclass

from joulemesh import machine

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True)
class Limit:
    """The most that is read of one kind of file.

    Attributes:
        reads: what it is about, in the words of the documentation.
        why: the reason for the figure.
        most: the figure, whatever the machine has.
        part: at most one part in this many of the memory that the process may use, as well.
        unit: what the figure counts.
    """

    reads: str
    why: str
    most: int = sys.maxsize
    part: int = 0
    unit: str = "bytes"

    @property
    def now(self) -> int:
        """The figure on this machine, in its control group, within its resource limits.

        >>> SCENARIO.now
        16777216
        >>> DATA.now <= machine.memory_bytes() // 2
        True
        """
        return min(self.most, machine.memory_bytes() // self.part) if self.part else self.most

    def __str__(self) -> str:
        """The figure in words.

        >>> print(SCENARIO, DATA, TABLE, DATA_COLUMNS, sep="; ")
        16 MiB; 1/2 of the memory; 1/32 of the memory, 256 MiB at most; 262,144 columns
        """
        share = f"1/{self.part} of the memory" if self.part else ""
        if self.most == sys.maxsize:
            return share
        if self.unit != "bytes":
            return f"{self.most:,} {self.unit}"
        sizes = ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB"))
        figure = next(f"{self.most // size} {name}" for size, name in sizes if self.most >= size)
        return f"{share}, {figure} at most" if share else figure


SCENARIO = Limit(
    "scenario files (TOML, JSON)",
    "a million links written out one by one fit",
    16 * _MIB,
)
RECORD = Limit(
    "JSON records of run and study folders (`versions.json`, `result.json`, `inputs.json`, "
    "`worlds.json`, `timings.json`), and the record in `plan.npz`",
    "they hold a scenario and a little more",
    32 * _MIB,
)
RECORD_PARTS = Limit(
    "objects and lists in one JSON text",
    "each takes 20 times its two characters in memory",
    2**21,
    unit="objects and lists",
)
TABLE = Limit(
    "tables of a scenario: devices, links, gains, traces (CSV)",
    "cells are kept as text, which takes 20 times the file at worst",
    256 * _MIB,
    32,
)
TABLE_LINE = Limit("a line of such a table", "a longer one is no table", _MIB)
DATA = Limit(
    "samples (`.npz`, CSV, TSV, Parquet, plain or packed), by what they take unpacked",
    "training needs room beside them",
    part=2,
)
DATA_LINE = Limit(
    "a line of a CSV or TSV file with samples",
    "it is the least that must be held at once",
    4 * _MIB,
    unit="characters",
)
DATA_COLUMNS = Limit(
    "columns of a table with samples",
    "each costs a name and a type of its own",
    2**18,
    unit="columns",
)
ARRAY_HEADER = Limit(
    "the header of an array in an `.npz` file", "NumPy writes 128 bytes", 64 * _KIB
)
ARRAY_LIST = Limit(
    "the list of arrays in an `.npz` file", "Joulemesh's own hold fewer than 30 arrays", _MIB
)
XZ = Limit("memory for unpacking an `.xz` file", "`xz -9` asks for 65 MiB", 128 * _MIB)
TARBALL = Limit("a tarball of published data, unpacked", "that of CIFAR-10 holds 178 MiB", _GIB)
TARBALL_HEADER = Limit(
    "the headers of one member of a tarball, with long names and attributes",
    "a path has 4 KiB at most",
    _MIB,
)
TARBALL_MEMBERS = Limit("members of a tarball", "that of CIFAR-10 holds 9", 1000, unit="members")
PICKLED_BATCH = Limit(
    "a batch of CIFAR-10's Python version; other published files must have exactly their "
    "published size",
    "the published ones hold 30 MiB",
    64 * _MIB,
)
PLAN = Limit(
    "`plan.npz` and `labels.npz`, whose arrays are not packed",
    "reading and comparing them takes a few copies",
    part=4,
)
EVALUATIONS = Limit("`metrics.csv` of a run", "its rows take ten times their text", part=16)
CHECKPOINT_HEADER = Limit(
    "the header of a checkpoint (safetensors), which must also fit the run: what follows is read "
    "only as far as the run's own shapes say",
    "an array takes 200 bytes of it",
    16 * _MIB,
)
JOURNAL = Limit(
    "a journal of a device (`journal.jsonl`), line by line", "nodes begin a new one at 8 MB", _GIB
)
JOURNAL_LINE = Limit("a line of a device's journal", "a view of 100,000 members fits", 4 * _MIB)
MANIFEST_FILE = Limit("`manifest.jsonl`", "a commit takes about 700 bytes", 256 * _MIB, 16)
MANIFEST_LINE = Limit("a line of it: one commit", "30,000 changed files fit", 4 * _MIB)
MANIFEST_NAMES = Limit(
    "files named in a manifest, counted anew for each commit",
    "200,000 commits of ten files fit",
    2**21,
    unit="files",
)
NODE_STATE = Limit(
    "`state.log` of a device that runs a plan",
    "it is written anew when it holds four times what is still needed",
    part=2,
)
KEPT_RUN = Limit("a run in the cache of comparisons", "a million evaluations fit", 2**31, 4)
CACHED = Limit(
    "any other file in the cache",
    "what is larger is made again",
    part=2,
)
STUDY_TABLE = Limit(
    "`claims.csv` and the figures' tables of a reproduction",
    "the complete ones hold less than 1 MiB",
    16 * _MIB,
)
SOURCE = Limit("a Python file of the user's own", "a longer one was not written by hand", 16 * _MIB)
FLEET = Limit(
    "`fleet.json` and `orders.json` of a deployed device, and a block of text that it is enrolled "
    "with, unpacked",
    "a scenario, 100,000 links and tables of 10 MiB fit",
    32 * _MIB,
)
HOST_LIST = Limit("`hosts.csv` of a fleet", "a row takes 40 bytes", 4 * _MIB)

LIMITS = tuple(value for value in globals().copy().values() if isinstance(value, Limit))
