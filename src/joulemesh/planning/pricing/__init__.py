"""Joules and seconds: of an exchange along a route, and of a scheme over some iterations."""

from __future__ import annotations

from joulemesh.planning.pricing.scheme import LINK_REPORT_BITS, Pricer
from joulemesh.planning.pricing.weigh import choose_scheme

__all__ = ["LINK_REPORT_BITS", "Pricer", "choose_scheme"]
