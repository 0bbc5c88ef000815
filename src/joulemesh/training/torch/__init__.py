"""The learner of PyTorch modules; PyTorch is loaded when one is made."""

from __future__ import annotations
