"""What a paper takes over from a comparison: table, setting and references."""

from __future__ import annotations

__all__ = ["data_sizes", "plan_of", "write_comparison_paper"]

from pathlib import Path

from joulemesh.data import Dataset
from joulemesh.data.chosen import spec_for
from joulemesh.errors import JoulemeshError
from joulemesh.files import write_text
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan
from joulemesh.results.comparison import Comparison
from joulemesh.runs.cite import references, used_by
from joulemesh.runs.formats import flat
from joulemesh.runs.identity import versions
from joulemesh.scenario import Scenario
from joulemesh.views.publication.methods import Sizes, comparison_methods
from joulemesh.views.publication.printing import TWO_COLUMNS_IN, Printing
from joulemesh.views.publication.table import comparison_table


def write_comparison_paper(
    found: Comparison, folder: Path, printing: Printing, baseline: str | None = None
) -> None:
    """Write ``table.tex``, ``methods.txt`` and ``references.bib``.

    Args:
        found: the comparison.
        folder: that exists.
        printing: of its figures; the table is narrow if they are.
        baseline: the method that the others are tested against; the best unless given.
    """
    narrow = printing.width is not None and printing.width < TWO_COLUMNS_IN
    table = comparison_table(found, baseline=baseline, narrow=narrow)
    write_text(folder / "table.tex", table)
    sizes = data_sizes(found.scenario, found.own_data)
    setting = comparison_methods(found, plan_of(found.scenario), sizes, flat(versions()))
    write_text(folder / "methods.txt", setting)
    used = used_by(found.scenario, [entry.name for entry in found.entries])
    write_text(folder / "references.bib", references(used))


def plan_of(scenario: Scenario) -> Plan | None:
    """The scenario's plan; None where its budgets pay for none."""
    try:
        return plan(scenario)
    except JoulemeshError:
        return None


def data_sizes(scenario: Scenario, own: Dataset | None = None) -> Sizes | None:
    """How many samples there are; None where the data cannot be had."""
    if own is not None:
        return Sizes(len(own.x_train), len(own.x_test), own.classes)
    try:
        found = spec_for(scenario)
    except JoulemeshError:
        return None
    return Sizes(found.train, found.test, found.classes)
