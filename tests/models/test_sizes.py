"""Parameter counts: arithmetic and reality agree, without JAX."""

from __future__ import annotations

import subprocess
import sys

import jax
import pytest

from joulemesh.errors import ScenarioError
from joulemesh.models import build, parameter_count
from joulemesh.models.sizes import multiply_adds


@pytest.mark.parametrize(
    ("model", "shape", "hidden", "count"),
    [
        ("logistic", (8, 8, 1), (), 650),
        ("mlp", (8, 8, 1), (64,), 4810),
        ("mlp", (28, 28, 1), (200,), 159_010),
        ("mlp", (28, 28, 1), (64,), 50_890),
        ("mlp", (5,), (4, 3), 5 * 4 + 4 + 4 * 3 + 3 + 3 * 10 + 10),
        ("cnn", (32, 32, 3), (64,), 73_418),
        ("cnn", (28, 28, 1), (), 60_554),
        ("cnn", (22, 40, 2), (), None),
    ],
)
def test_the_arithmetic_equals_the_real_count(
    model: str, shape: tuple[int, ...], hidden: tuple[int, ...], count: int | None
) -> None:
    arithmetic = parameter_count(model, shape, 10, hidden)
    drawn = build(model, shape, 10, hidden).init(jax.random.key(0))
    assert arithmetic == sum(leaf.size for leaf in jax.tree.leaves(drawn))
    assert arithmetic == build(model, shape, 10, hidden).parameters
    assert count in (None, arithmetic)


@pytest.mark.parametrize(
    ("model", "shape", "hidden"),
    [
        ("logistic", (8, 8, 1), ()),
        ("mlp", (28, 28, 1), (200,)),
        ("mlp", (50,), (40, 30)),
        ("cnn", (28, 28, 1), ()),
        ("cnn", (23, 40, 2), ()),
    ],
)
def test_the_multiply_adds_are_those_of_the_compiled_program(
    model: str, shape: tuple[int, ...], hidden: tuple[int, ...]
) -> None:
    """Two operations each; the compiler also counts biases and activations, a few for each."""
    built, batch = build(model, shape, 10, hidden), 4
    params = built.init(jax.random.key(0))
    lowered = jax.jit(built.apply).lower(params, jax.numpy.zeros((batch, *shape)))
    counted = lowered.cost_analysis()["flops"] / batch
    arithmetic = 2 * multiply_adds(model, shape, 10, hidden)
    assert 0.97 * counted < arithmetic <= counted


@pytest.mark.parametrize(
    ("model", "shape", "classes", "hidden", "words"),
    [
        ("resnet", (8, 8, 1), 10, (), "'resnet' is unknown"),
        ("cnn", (8, 8, 1), 10, (), "22x22 or more, not \\(8, 8, 1\\)"),
        ("cnn", (64,), 10, (), "height, width, channels"),
        ("mlp", (8, 8, 1), 10, (), "hidden = \\[\\]"),
        ("mlp", (8, 8, 1), 10, (64, 0), "hidden = \\[64, 0\\]"),
        ("logistic", (8,), 1, (), "1 classes"),
        ("logistic", (0,), 2, (), "hold nothing"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    model: str, shape: tuple[int, ...], classes: int, hidden: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        parameter_count(model, shape, classes, hidden)
    assert "\n" not in str(caught.value)


def test_neither_sizes_nor_data_load_jax() -> None:
    program = (
        "import sys, joulemesh.data, joulemesh.models;"
        "joulemesh.models.parameter_count('cnn', (32, 32, 3), 10);"
        "joulemesh.data.spec('mnist');"
        "heavy = {'jax', 'sklearn', 'pooch', 'flax'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
