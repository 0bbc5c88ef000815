"""The sentences and tiles of a deployment's page. Everything is escaped here."""

from __future__ import annotations

__all__ = ["has_journal", "name_list", "notes", "sentence", "share_words", "tiles"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.record.chronicle import accuracies
from joulemesh.units import duration, energy
from joulemesh.views.deployment.charts import elapsed
from joulemesh.views.run.fragments import text
from joulemesh.views.words import percent

if TYPE_CHECKING:
    from joulemesh.views.deployment.page import DeploymentView

_MOST_NAMES = 12


def name_list(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Names in a sentence; a long list is cut.

    >>> name_list(["gate", "barn", "mast"]), name_list(["gate", "barn", "mast"], 2)
    ('gate, barn and mast', 'gate, barn and 1 more')
    """
    more = len(names) - most
    if more > 0:
        return f"{', '.join(names[:most])} and {more:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def has_journal(view: DeploymentView) -> NDArray[np.bool_]:
    """bool [N]: whose journal is here."""
    return np.asarray(np.isfinite(view.receipt.spent_j))


def _joules(view: DeploymentView) -> tuple[float, float]:
    """Metered and planned, of the devices whose journals there are, as far as they have come."""
    there = has_journal(view)
    done = np.isfinite(view.receipt.metered.rounds)
    planned = np.nansum(np.where(done, view.receipt.simulated.joules, 0.0))
    return float(view.receipt.spent_j[there].sum()), float(planned)


def _reached(view: DeploymentView) -> tuple[float, float, int] | None:
    """The last accuracy measured: mean and worst device, and after which iteration."""
    iterations, values = accuracies(view.histories)
    if not len(iterations):
        return None
    last = values[-1][np.isfinite(values[-1])]
    return float(last.mean()), float(last.min()), int(iterations[-1])


def _committed(view: DeploymentView) -> int:
    return int(np.isfinite(view.receipt.metered.rounds).any(axis=1).sum())


def sentence(view: DeploymentView) -> str:
    """The deployment in one sentence, or two where something happened."""
    receipt, done, there = view.receipt, _committed(view), has_journal(view)
    every = "" if there.all() else f"{int(there.sum()):,} of "
    held, (spent, _) = float(receipt.battery_j[there].sum()), _joules(view)
    times = f"{done:,}" if done == receipt.iterations else f"{done:,} of {receipt.iterations:,}"
    said = (
        f"{every}{len(there):,} devices carried out {times} iterations, averaging "
        f"{view.plan.timeline.scheme.kind.words}, for {energy(spent)} of "
        f"{energy(held)} in {duration(elapsed(view.histories))}"
    )
    reached = _reached(view)
    if reached is not None:
        said += f", and reached {percent(reached[0])} accuracy"
        if view.curve is not None and len(view.curve.iteration):
            said += f" (simulated {percent(float(view.curve.accuracy[:, -1].mean()))})"
    if not view.views:
        return f"{said}. Nobody left and nobody joined."
    last = view.views[-1].view
    changes = "once" if len(view.views) == 1 else f"{len(view.views):,} times"
    return (
        f"{said}. Membership changed {changes}; {len(last.members):,} devices were members at "
        "the end."
    )


def notes(view: DeploymentView) -> str:
    """What a reader should know, each in a paragraph."""
    return "\n".join(f'<p class="why note">{text(line)}</p>' for line in view.notes)


def tiles(view: DeploymentView) -> str:
    """The main figures, each in a tile."""
    receipt, (spent, priced) = view.receipt, _joules(view)
    done = np.isfinite(receipt.metered.rounds)
    slowest = _slowest(receipt.metered.seconds)
    expected = _slowest(np.where(done, receipt.simulated.seconds, np.nan))
    figures = [
        (receipt.word, energy(spent), _against(spent, priced, energy(priced))),
        ("seconds of iterations", duration(slowest), _against(slowest, expected,
                                                              duration(expected))),
    ]  # fmt: skip
    reached = _reached(view)
    if reached is not None:
        figures.insert(
            0, ("accuracy", percent(reached[0]), f"weakest device {percent(reached[1])}")
        )
    least = np.where(has_journal(view), receipt.battery_j - receipt.spent_j, np.inf)
    if np.isfinite(least).any():
        tightest = int(np.argmin(least / receipt.battery_j))
        share = float(least[tightest] / receipt.battery_j[tightest])
        figures.append(("least battery left", _left(share), receipt.names[tightest]))
    shares = [one.share for one in view.links if one.share is not None]
    if shares:
        note = f"of the planned rate, median of {len(shares):,} links"
        if view.together:
            note = "of the planned rate: how fast one machine handles messages, which has no links"
        figures.append(("links", share_words(float(np.median(shares))), note))
    missing = int(receipt.missing[has_journal(view)].sum())
    plural = "" if missing == 1 else "s"
    whole = f"{missing:,} iteration{plural} not in them" if missing else "every iteration in them"
    there = int(has_journal(view).sum())
    figures.append(("journals", f"{there:,} of {len(receipt.names):,}", whole))
    return "".join(
        f"<li><span>{text(name)}</span><strong>{text(value)}</strong>"
        f"<small>{text(note)}</small></li>"
        for name, value, note in figures
    )


def _slowest(seconds: NDArray[np.float64]) -> float:
    known = np.isfinite(seconds).any(axis=1)
    return float(np.nanmax(seconds[known], axis=1).sum()) if known.any() else 0.0


def _against(value: float, other: float, words: str) -> str:
    if not other:
        return "nothing to compare with"
    return f"{_signed(value / other - 1)} against {words} simulated"


def _left(share: float) -> str:
    """What is left of a battery; rounding is no debt.

    >>> _left(0.25), _left(-1e-12), _left(-0.02)
    ('25.0 %', '0.0 %', 'overdrawn by 2.0 %')
    """
    return percent(max(share, 0.0)) if share > -1e-6 else f"overdrawn by {percent(-share)}"


def share_words(share: float) -> str:
    """A share in per cent; what is far more, as a multiple.

    >>> share_words(0.9), share_words(57.3)
    ('90.0 %', '57.3 times')
    """
    return percent(share) if share < 2 else f"{share:.1f} times"


def _signed(share: float) -> str:
    """A difference with its sign.

    >>> _signed(0.021), _signed(-0.3), _signed(0.0)
    ('+2.1 %', '−30.0 %', '±0.0 %')
    """
    figure = percent(abs(share))
    if figure == "0.0 %":
        return "±0.0 %"
    return f"{'+' if share > 0 else '−'}{figure}"
