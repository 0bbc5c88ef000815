"""Joulemesh: decentralized federated learning on an energy and latency budget.

>>> import joulemesh
>>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
>>> plan.scheme
'tree'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joulemesh._version import __version__

if TYPE_CHECKING:
    from joulemesh.base.errors import InfeasibleError, JoulemeshError, ScenarioError
    from joulemesh.calibration.calibration import Calibration, calibrate
    from joulemesh.planning.advice import Answer, advice
    from joulemesh.planning.plan import Plan
    from joulemesh.planning.static import plan
    from joulemesh.scenario import Scenario
    from joulemesh.study.compare import compare
    from joulemesh.study.comparison import Comparison
    from joulemesh.study.result import Result
    from joulemesh.study.run import run
    from joulemesh.study.sweep import sweep
    from joulemesh.study.sweep_result import Sweep
    from joulemesh.study.tune import tune
    from joulemesh.study.tuning import Tuned
    from joulemesh.theory.measured import estimate
    from joulemesh.views.notebook import notebook_html
    from joulemesh.views.progress import ProgressBar

__all__ = [
    "Answer",
    "Calibration",
    "Comparison",
    "InfeasibleError",
    "JoulemeshError",
    "Plan",
    "ProgressBar",
    "Result",
    "Scenario",
    "ScenarioError",
    "Sweep",
    "Tuned",
    "__version__",
    "advice",
    "calibrate",
    "compare",
    "estimate",
    "notebook_html",
    "plan",
    "run",
    "sweep",
    "tune",
]

# Names are imported when first used, so that planning never pays for training's libraries.
_HOME = {
    "Answer": "joulemesh.planning.advice",
    "Calibration": "joulemesh.calibration.calibration",
    "Comparison": "joulemesh.study.comparison",
    "InfeasibleError": "joulemesh.base.errors",
    "JoulemeshError": "joulemesh.base.errors",
    "Plan": "joulemesh.planning.plan",
    "ProgressBar": "joulemesh.views.progress",
    "Result": "joulemesh.study.result",
    "Scenario": "joulemesh.scenario",
    "ScenarioError": "joulemesh.base.errors",
    "Sweep": "joulemesh.study.sweep_result",
    "Tuned": "joulemesh.study.tuning",
    "advice": "joulemesh.planning.advice",
    "calibrate": "joulemesh.calibration.calibration",
    "compare": "joulemesh.study.compare",
    "estimate": "joulemesh.theory.measured",
    "notebook_html": "joulemesh.views.notebook",
    "plan": "joulemesh.planning.static",
    "run": "joulemesh.study.run",
    "sweep": "joulemesh.study.sweep",
    "tune": "joulemesh.study.tune",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            return getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:  # the light installation does not train
            from joulemesh.base.optional import explained

            raise explained(error) from None
    raise AttributeError(f"module 'joulemesh' has no attribute {name!r}")
