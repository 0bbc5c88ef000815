"""Fetch a data set's published files into a cache folder, with checksums and a progress bar."""

from __future__ import annotations

__all__ = ["fetch"]

from pathlib import Path
from typing import TYPE_CHECKING

from joulemesh.data.sources import Download, Source
from joulemesh.errors import ScenarioError
from joulemesh.optional import require

if TYPE_CHECKING:
    from rich.progress import Progress


class _Bar:
    """What pooch asks of a progress bar, drawn by Rich on standard error."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.total = 0  # pooch sets it when the server has answered
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    def update(self, size_bytes: int) -> None:
        self._progress.update(self._task, advance=size_bytes, total=self.total or None)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.refresh()


def fetch(source: Source, cache: Path, *, progress: bool = True) -> None:
    """Download what the cache folder lacks; files whose checksum is right are kept.

    Args:
        source: the data set.
        cache: files go to the folder of the data set's name in it, each complete or not at all.
        progress: whether to draw a bar per file on standard error.

    Raises:
        ScenarioError: a file could be had from none of its addresses.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not progress,
    )
    with bars:
        for download in source.downloads:
            _fetch_one(source.name, download, cache / source.name, bars)


def _fetch_one(dataset: str, download: Download, folder: Path, bars: Progress) -> None:
    pooch = require("pooch", f"downloading {dataset}")
    pooch.get_logger().setLevel("WARNING")  # the bar says what its log would
    reasons = []
    for url in download.urls:
        downloader = pooch.HTTPDownloader(progressbar=_Bar(bars, download.name), chunk_size=1 << 16)
        try:
            pooch.retrieve(
                url, download.checksum, fname=download.name, path=folder, downloader=downloader
            )
        # pooch raises ValueError for a wrong checksum; requests' errors are OSErrors.
        except (OSError, ValueError) as error:
            text = " ".join(str(error).split())
            reasons.append(f"{url}: {type(error).__name__} {text[:160]}")
        else:
            return
    raise ScenarioError(
        f"{dataset}: {download.name} could not be downloaded ({'; '.join(reasons)}): try again, or "
        f"get it by hand, put it in {folder} or in a folder named by training.data_dir "
        f"(--data-dir) or JOULEMESH_DATA"
    )
