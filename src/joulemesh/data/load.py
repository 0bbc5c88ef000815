"""Load a data set by its name: one that comes with the package, a published one, or one's own."""

from __future__ import annotations

__all__ = ["load"]

from pathlib import Path

from joulemesh.data.catalog import DATASETS, check_name
from joulemesh.data.dataset import Dataset
from joulemesh.data.reading import Reading, check_nobody_holds, check_only_tables
from joulemesh.data.targets import check_loss


def load(
    dataset: str,
    *,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    download: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
) -> Dataset:
    """Load a data set.

    The published files are looked for in ``data_dir``, then in the folder that the environment
    variable JOULEMESH_DATA names, then in the cache; then they are downloaded into the cache.

    Args:
        dataset: ``digits``, ``diabetes`` or ``verses`` (embedded), ``mnist``, ``fashion-mnist``,
            ``cifar-10``, the path of
            an ``.npz`` file with x_train, y_train, x_test and y_test, of a table with a column of
            labels (``.csv``, ``.tsv``, also packed as ``.gz`` or ``.xz``, or ``.parquet``), of
            samples that stay on disk (`joulemesh.data.disk`),
            ``folder:PATH`` for one shard per device (`joulemesh.data.federated`), or
            ``hf:OWNER/NAME`` for a data set of the Hugging Face hub (see `joulemesh.data.hub`).
        data_dir: folder that holds ``mnist/`` and the like, or the original files themselves.
        cache_dir: where downloads and decoded arrays are kept; the user's cache folder if None.
        download: whether files may be fetched.
        progress: whether to draw a bar while they are.
        reading: what is said about columns, splits and scaling of the user's own data.

    Returns:
        The Dataset, checked.

    Raises:
        ScenarioError: unknown name; a file missing, truncated or corrupt; bad values.

    >>> load("digits").x_train.shape
    (1437, 8, 8, 1)
    """
    check_name(dataset)
    reading = reading or Reading()
    # Readers are imported only when there is something to read: planning loads nothing.
    if dataset not in DATASETS:
        from joulemesh.data.own import own_data

        return own_data(dataset, reading, cache_dir)
    check_only_tables(dataset, reading)
    check_nobody_holds(dataset, reading)
    from joulemesh.data.examples import EMBEDDED

    if dataset in EMBEDDED:
        made = EMBEDDED[dataset]()
        check_loss(dataset, made.targets, reading.loss, reading.targets)
        return made
    from joulemesh.data.published import published

    return published(dataset, data_dir, cache_dir, download, progress)
