"""``links.csv``: a row for each direction of a link, which a scenario takes (``network.links``)."""

from __future__ import annotations

__all__ = ["COLUMNS", "links_text", "row_of", "update_links"]

import csv
import datetime as dt
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text
from joulemesh.base.units import si
from joulemesh.deploy.links.figures import LinkFigures
from joulemesh.tables import read_table

COLUMNS = (
    "i",
    "j",
    "rate_bps",
    "rate_bps_low",
    "rate_bps_high",
    "rate_bps_source",
    "alone_bps",
    "together_bps",
    "rtt_s",
    "retransmitted",
    "bytes",
    "transfers",
    "from",
    "to",
)


def row_of(link: LinkFigures, use: str = "lower", now: dt.datetime | None = None) -> dict[str, str]:
    """A measured direction of a link as cells.

    Args:
        link: what was measured.
        use: which rate a plan is to take: see `LinkFigures.chosen`.
        now: the date that the source bears; today unless given.

    >>> from joulemesh.deploy.links.figures import Timed
    >>> timed = Timed("farm-01", "farm-02", 125_000, (0.5, 0.5), 0.004, 90, 0)
    >>> row = row_of(LinkFigures(0, 1, timed), now=dt.datetime(2026, 11, 16))
    >>> row["rate_bps"], row["alone_bps"], row["together_bps"], row["retransmitted"]
    ('2e+06', '2e+06', '', '0')
    >>> row["rate_bps_source"]
    'measured 2026-11-16: 2 transfers of 125 kB, alone'
    """
    taken, rate = link.chosen(use), link.rate(use)
    how = "with all links in use" if taken is link.together else "alone"
    date = (now or dt.datetime.now(dt.UTC)).strftime("%Y-%m-%d")
    size = si(taken.payload_bytes, "B")
    return {
        "i": str(link.i),
        "j": str(link.j),
        "rate_bps": _cell(rate.bps),
        "rate_bps_low": _cell(rate.low),
        "rate_bps_high": _cell(rate.high),
        "rate_bps_source": f"measured {date}: {len(taken.seconds)} transfers of {size}, {how}",
        "alone_bps": _cell(link.alone.rate.bps) if link.alone and link.alone.seconds else "",
        "together_bps": (
            _cell(link.together.rate.bps) if link.together and link.together.seconds else ""
        ),
        "rtt_s": _cell(taken.rtt_s),
        "retransmitted": "" if taken.retransmitted is None else _cell(taken.retransmitted),
        "bytes": str(taken.payload_bytes),
        "transfers": str(len(taken.seconds)),
        "from": taken.here,
        "to": taken.there,
    }


def _cell(figure: float) -> str:
    return f"{figure:.6g}"


def update_links(path: Path, rows: Sequence[Mapping[str, str]]) -> int:
    """Put rows into a file: in the place of those of the same direction, or at its end.

    Columns that somebody has added keep their cells, and rows that were not measured now stay.

    Args:
        path: of the file; made if it is not there.
        rows: with `COLUMNS`.

    Returns:
        How many rows the file has.

    Raises:
        ScenarioError: the file is there and has no columns i and j, or cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "links.csv")
    ...     path.write_text("i,j,rate_bps,energy_j_per_bit\\n0,1,5e6,1e-7\\n1,0,4e6,1e-7\\n") > 0
    ...     update_links(path, [{"i": "0", "j": "1", "rate_bps": "8e6"}])
    ...     print(path.read_text(), end="")
    True
    2
    i,j,rate_bps,energy_j_per_bit
    0,1,8e6,1e-7
    1,0,4e6,1e-7
    """
    kept: dict[tuple[str, str], dict[str, str]] = {}
    header: list[str] = []
    if path.exists():
        columns = read_table(path)
        header = list(columns)
        if not {"i", "j"} <= set(header):
            raise ScenarioError(
                f"{path} has the columns {', '.join(header)}, and no i and j; give another --out"
            )
        for cells in zip(*columns.values(), strict=True):
            row = dict(zip(header, cells, strict=True))
            kept[row["i"], row["j"]] = row
    for new in rows:
        kept.setdefault((new["i"], new["j"]), {}).update(new)
    given = {name for new in rows for name in new}
    header += [name for name in COLUMNS if name in given and name not in header]
    write_text(path, links_text(header, list(kept.values())))
    return len(kept)


def links_text(header: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as the text of a CSV file.

    >>> links_text(["i", "to"], [{"i": "0", "to": "a,b"}, {"i": "1"}])
    'i,to\\n0,"a,b"\\n1,\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
