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
    from joulemesh.calibration.calibrate import calibrate
    from joulemesh.calibration.calibration import Calibration
    from joulemesh.planning.advice import Answer, advice
    from joulemesh.planning.plan import Plan
    from joulemesh.planning.static import plan
    from joulemesh.scenario import Scenario
    from joulemesh.study.compare import compare
    from joulemesh.study.compare import save_comparison as save_comparison
    from joulemesh.study.compare import save_result as save_result
    from joulemesh.study.comparison import Comparison
    from joulemesh.study.result import Result
    from joulemesh.study.run import run
    from joulemesh.study.sweep import save_sweep as save_sweep
    from joulemesh.study.sweep import sweep
    from joulemesh.study.sweep_result import Sweep
    from joulemesh.study.tune import Tuned, tune
    from joulemesh.theory.measured.estimate import estimate
    from joulemesh.views.figures import comparison_figure as comparison_figure
    from joulemesh.views.figures import sweep_figure as sweep_figure
    from joulemesh.views.notebook import notebook_html
    from joulemesh.views.progress import ProgressBar
    from joulemesh.views.tables import comparison_text as comparison_text
    from joulemesh.views.tables import sweep_text as sweep_text

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

# Names are imported when first used, so that planning never pays for training's libraries. Those
# that are not in `__all__` are what `save` and `figure` of a result call, which stands above them.
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
    "Tuned": "joulemesh.study.tune",
    "advice": "joulemesh.planning.advice",
    "calibrate": "joulemesh.calibration.calibrate",
    "compare": "joulemesh.study.compare",
    "comparison_figure": "joulemesh.views.figures",
    "comparison_text": "joulemesh.views.tables",
    "estimate": "joulemesh.theory.measured.estimate",
    "notebook_html": "joulemesh.views.notebook",
    "plan": "joulemesh.planning.static",
    "run": "joulemesh.study.run",
    "save_comparison": "joulemesh.study.compare",
    "save_result": "joulemesh.study.compare",
    "save_sweep": "joulemesh.study.sweep",
    "sweep": "joulemesh.study.sweep",
    "sweep_figure": "joulemesh.views.figures",
    "sweep_text": "joulemesh.views.tables",
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
