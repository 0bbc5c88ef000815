"""A deployment as one self-contained HTML page: what was planned, simulated and metered."""

from __future__ import annotations

__all__ = ["CHARTS", "DeploymentView", "course_charts", "link_charts", "render_deployment"]

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Template

from joulemesh.deploy.record.chronicle import LinkRate, Seen, disagreements, link_rates, views_of
from joulemesh.deploy.record.history import History
from joulemesh.deploy.record.receipt import Receipt
from joulemesh.planning.plan import Plan
from joulemesh.views import words
from joulemesh.views.asset import asset
from joulemesh.views.deployment import fragments, rows
from joulemesh.views.deployment.charts import Curve, chart_data
from joulemesh.views.page import render_page
from joulemesh.views.run.fragments import provenance, text
from joulemesh.views.words import Subject

CHARTS = (
    *("lines.js", "rounds.js", "timeline.js", "gantt.js", "flow.js"),
    "deployment.js",
)


@dataclass(frozen=True, eq=False)
class DeploymentView:
    """Everything that the page shows.

    Attributes:
        plan: the plan that was deployed.
        receipt: its costs, three times.
        histories: of every device, in the order of the receipt; empty ones without a journal.
        views: those that were installed after the plan's own.
        links: every direction of a link that carried something.
        curve: the simulated curve of accuracy, or None.
        subject: the fleet's name and the date.
        versions: software and hardware, name by name.
        notes: what a reader should know, one line each.
        together: were all devices processes of one machine, without links between them?
    """

    plan: Plan
    receipt: Receipt
    histories: Sequence[History]
    views: Sequence[Seen] = ()
    links: Sequence[LinkRate] = ()
    curve: Curve | None = None
    subject: Subject = field(default_factory=Subject)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    together: bool = False

    @classmethod
    def of(
        cls,
        plan: Plan,
        receipt: Receipt,
        histories: Sequence[History],
        *,
        curve: Curve | None = None,
        subject: Subject | None = None,
        versions: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
        together: bool = False,
    ) -> DeploymentView:
        """The view of what journals tell; views and links are taken from them."""
        silent = [one.name for one in histories if not one.events and not len(one.iterations)]
        damaged = sum(one.damaged for one in histories)
        found = [f"DISAGREEMENT: {line}" for line in disagreements(histories)]
        if silent:
            found.append(f"No journal of {fragments.name_list(silent)}: not in any sum below.")
        if damaged:
            found.append(f"Lines of journals that could not be read and are left out: {damaged:,}.")
        return cls(
            plan,
            receipt,
            histories,
            views_of(histories),
            link_rates(plan, histories),
            curve,
            subject or Subject(),
            versions or {},
            (*found, *notes),
            together,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """What the devices are called."""
        return self.receipt.names


def course_charts(*, learned: bool) -> str:
    """Places for the charts of a course, on the pages of finished and of running fleets.

    Args:
        learned: is there a curve of accuracy?
    """
    return Template(asset("fleet-course.html")).substitute(learning="" if learned else "hidden")


def link_charts(*, planned: bool, linked: bool) -> str:
    """Places for the charts of links and of the plan, on the same pages.

    Args:
        planned: is there an iteration to draw?
        linked: is there a link to draw?
    """
    return Template(asset("fleet-links.html")).substitute(
        linked="" if linked else "hidden", iterations="" if planned else "hidden"
    )


def render_deployment(view: DeploymentView) -> str:
    """The page as text.

    Args:
        view: what it shows.

    Returns:
        HTML with its style, its script and its data inside.
    """
    data = chart_data(view)
    learned = bool(data["learning"]["measured"]["iteration"] or data["learning"]["simulated"])
    return render_page(
        "deployment.html",
        title=words.page_title("Deployment", view.subject),
        styles=("report.css", "deployment.css"),
        scripts=CHARTS,
        data=data,
        live=False,
        summary=text(fragments.sentence(view)),
        notes=fragments.notes(view),
        tiles=fragments.tiles(view),
        course=course_charts(learned=learned),
        links_charts=link_charts(planned=bool(data["gantt"]), linked=bool(data["links"])),
        devices=rows.devices(view),
        views=rows.views(view),
        events=rows.events(view),
        links=rows.links(view),
        sources=rows.sources(view),
        scenario=html.escape(view.plan.scenario.to_toml()),
        provenance=provenance(view.versions, ()),
    )
