"""Real nodes on links at the plan's rates; skipped, with the reason, where there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import deploy_links
from joulemesh.deploy.local.emulate import why_not

_REFUSAL = why_not()


@pytest.mark.slow
@pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL)
@pytest.mark.parametrize("scheme", ["tree", "ring-chunked"])
def test_an_exchange_takes_the_planned_seconds_where_links_are_the_limit(
    scheme: str, tmp_path: Path
) -> None:
    """Six devices, links of 5 to 50 Mbit/s, 0.3 MB of parameters."""
    found = deploy_links.exchanged(tmp_path / "fleet", scheme, (1000,))
    assert 0.85 <= found["ratio"] <= 1.15


@pytest.mark.slow
@pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL)
def test_messages_use_most_of_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 0.3 to 20 MB; the benchmark tries 5 and 50 Mbit/s too."""
    monkeypatch.setattr(deploy_links, "RATES_MBPS", (20.0,))
    found = deploy_links.measure_links(tmp_path)
    assert [one["megabytes"] for one in found] == list(deploy_links.SIZES_MB)
    assert min(one["goodput"] for one in found) >= 0.85
