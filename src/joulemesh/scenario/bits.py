"""How many bits a parameter may have in a message, and what they do to it.

Training rounds what is sent to 16 bits, IEEE half precision, exactly as the devices of a fleet do.
From 32 bits on nothing is rounded. No other width is carried out by anything, so that a plan that
charged for it would promise what neither training nor a fleet does.
"""

from __future__ import annotations

from joulemesh.errors import ScenarioError
from joulemesh.scenario.learning import Training
from joulemesh.scenario.sections import Network

__all__ = ["check_bits", "rounded_to"]

_ROUNDED = {16: "float16"}  # by bits
_WHOLE = 32  # bits from which on nothing is rounded


def rounded_to(bits_per_parameter: int) -> str:
    """The NumPy type to which every message is rounded; empty where none is.

    >>> rounded_to(16), rounded_to(32)
    ('float16', '')
    """
    return _ROUNDED.get(bits_per_parameter, "")


def check_bits(network: Network, training: Training) -> None:
    """Refuse widths that no message has.

    >>> check_bits(Network(bits_per_parameter=8), Training())
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: network.bits_per_parameter = 8 is not carried out: ...
    """
    bits = network.bits_per_parameter
    if bits < _WHOLE and not rounded_to(bits):
        raise ScenarioError(
            f"network.bits_per_parameter = {bits} is not carried out: messages have 16 bits "
            f"(rounded to half precision), or {_WHOLE} or more; use 16 or 32, or a method that "
            "compresses its messages to widths of its own, for instance "
            "balanced:compress=qsgd:8"
        )
    if rounded_to(bits) and training.weights == "samples":
        raise ScenarioError(
            f"network.bits_per_parameter = {bits} rounds sums of equally weighted devices, and "
            'training.weights = "samples" weighs them; set training.weights = "uniform" or '
            "network.bits_per_parameter = 32"
        )
