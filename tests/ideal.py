"""The paper's plan over ideal links, on which tests work out figures by hand."""

from __future__ import annotations

from typing import Any

from joulemesh.scenario import Scenario

__all__ = ["ideal"]


def ideal(**sections: Any) -> Scenario:
    """The preset "adaptive" with fields of some sections given."""
    return Scenario.preset("adaptive").override(sections)
