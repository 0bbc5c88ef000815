"""Files that pages are made of: styles, scripts and icons."""

from __future__ import annotations

__all__ = ["asset"]

from importlib import resources


def asset(name: str) -> str:
    """The text of a file of this package's folder ``assets``.

    >>> asset("report.css").count("{") > 10
    True
    """
    return resources.files("joulemesh.views").joinpath("assets", name).read_text("utf-8")
