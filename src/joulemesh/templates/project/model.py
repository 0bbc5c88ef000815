"""Train a model of your own, on the devices and data of scenario.toml: `python model.py`.

On the command line it is called by name: `--set training.model=model.py:Tones`.

The model looks at the strength of each tone and not at its phase, which is what tells the states of
a pump apart. Any Flax module will do, or a pair of functions (init(key), apply(params, x)).
"""

from __future__ import annotations

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp

import joulemesh


class Tones(nn.Module):
    """Strength of each tone, a hidden layer, and a score for each class."""

    classes: int = 4
    hidden: int = 16

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Scores [batch, classes] of records [batch, length]."""
        strength = jnp.abs(jnp.fft.rfft(x, axis=-1)) / x.shape[-1] ** 0.5
        return nn.Dense(self.classes)(nn.relu(nn.Dense(self.hidden)(strength)))


def main() -> None:
    """Plan and train, and say what came of it."""
    parser = argparse.ArgumentParser(description="Train a model of your own.")
    parser.add_argument("--iterations", type=int, help="other than in scenario.toml")
    parser.add_argument("--out", help="a new folder to keep the run in")
    asked = parser.parse_args()

    scenario = joulemesh.Scenario.load("scenario.toml")
    if asked.iterations is not None:
        scenario = scenario.override({"plan.iterations": asked.iterations})
    # Another model takes other cycles on a sample: measure yours, and say so here.
    scenario = scenario.override({"devices.cycles_per_sample": 1.5e5})
    result = joulemesh.run(scenario, model=Tones(), out=asked.out)
    print(f"{result.plan.work.parameters} parameters, accuracy {result.accuracy[-1]:.3f}")
    print(result)


if __name__ == "__main__":
    main()
