"""Joulemesh: decentralized federated learning on an energy and latency budget.

>>> import joulemesh
>>> plan = joulemesh.plan(joulemesh.Scenario.preset("default"))
>>> plan.scheme
'tree'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joulemesh._version import __version__

if TYPE_CHECKING:
    from joulemesh.errors import InfeasibleError, JoulemeshError, ScenarioError
    from joulemesh.planning.advice import Answer, advice
    from joulemesh.planning.plan import Plan
    from joulemesh.planning.static import plan
    from joulemesh.runs.compare import Comparison, compare
    from joulemesh.runs.result import Result
    from joulemesh.runs.run import run
    from joulemesh.runs.tune import Tuned, tune
    from joulemesh.scenario import Scenario
    from joulemesh.views.notebook.html import notebook_html

__all__ = [
    "Answer",
    "Comparison",
    "InfeasibleError",
    "JoulemeshError",
    "Plan",
    "Result",
    "Scenario",
    "ScenarioError",
    "Tuned",
    "__version__",
    "advice",
    "compare",
    "notebook_html",
    "plan",
    "run",
    "tune",
]

# Names are imported when first used, so that planning never pays for training's libraries.
_HOME = {
    "Answer": "joulemesh.planning.advice",
    "Comparison": "joulemesh.runs.compare",
    "InfeasibleError": "joulemesh.errors",
    "JoulemeshError": "joulemesh.errors",
    "Plan": "joulemesh.planning.plan",
    "Result": "joulemesh.runs.result",
    "Scenario": "joulemesh.scenario",
    "ScenarioError": "joulemesh.errors",
    "Tuned": "joulemesh.runs.tune",
    "advice": "joulemesh.planning.advice",
    "compare": "joulemesh.runs.compare",
    "notebook_html": "joulemesh.views.notebook.html",
    "plan": "joulemesh.planning.static",
    "run": "joulemesh.runs.run",
    "tune": "joulemesh.runs.tune",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'joulemesh' has no attribute {name!r}")
