"""Make the data set that the devices learn, and write it to data.npz: `python data.py`.

Here it is invented: short records of a pump's vibration, in one of four states, as an accelerometer
on each device would take them. Put your own in the place of `records`; what Joulemesh needs is

    x_train, x_test  float32 [samples, ...]   scaled to a magnitude of about 1
    y_train, y_test  [samples]                classes, as texts or as whole numbers from 0
    device_train     [samples]                which device holds a sample (the table's column name);
                                              left out, `training.partition` deals them out
"""

from __future__ import annotations

import argparse
import csv

import numpy as np
from numpy.typing import NDArray

STATES = {"off": (), "steady": (5,), "loose": (5, 11), "worn": (5, 17)}  # tones, in cycles a record
LENGTH = 64  # of a record


def records(
    states: NDArray[np.str_], gain: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Records of pumps in the given states, each taken with its device's gain."""
    time = np.arange(LENGTH) / LENGTH
    found = rng.normal(scale=1.2, size=(len(states), LENGTH))
    for row, state in enumerate(states):
        for tone in STATES[str(state)]:
            phase = rng.uniform(0, 2 * np.pi)
            found[row] += gain[row] * np.sin(2 * np.pi * tone * time + phase)
    return found.astype(np.float32)


def main() -> None:
    """Write data.npz."""
    parser = argparse.ArgumentParser(description="Write data.npz.")
    parser.add_argument("--samples", type=int, default=3000, help="how many training samples")
    samples: int = parser.parse_args().samples
    with open("devices.csv", newline="", encoding="utf-8") as file:
        devices = [row["name"] for row in csv.DictReader(file)]
    rng = np.random.default_rng(0)
    # Each device sees some states more often than others, and is mounted in its own way.
    often = rng.dirichlet(np.ones(len(STATES)), size=len(devices))
    mounted = rng.uniform(0.7, 1.3, size=len(devices))
    held = rng.integers(len(devices), size=samples)
    known = np.array(list(STATES))
    y_train = np.array([rng.choice(known, p=often[device]) for device in held])
    y_test = rng.choice(known, size=max(samples // 4, 1))
    np.savez(
        "data.npz",
        x_train=records(y_train, mounted[held], rng),
        y_train=y_train,
        x_test=records(y_test, rng.choice(mounted, size=len(y_test)), rng),
        y_test=y_test,
        device_train=np.array(devices)[held],
    )
    print(f"wrote data.npz: {samples} samples on {len(devices)} devices, {len(y_test)} for tests")


if __name__ == "__main__":
    main()
