"""Parameter counts: arithmetic and reality agree, without JAX."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import Registry
from joulemesh.models import Model, ModelKind, build, parameter_count
from joulemesh.models.kinds import multiply_adds
from joulemesh.planning.ground import workload
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario, Training


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
    analysis = lowered.cost_analysis()
    assert analysis is not None
    counted = analysis["flops"] / batch
    products = multiply_adds(model, shape, 10, hidden)
    assert products is not None
    arithmetic = 2 * products
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


def test_one_output_predicts_a_number_but_tells_no_classes_apart() -> None:
    model = build("logistic", (8,), 1, loss="mse")
    assert model.parameters == parameter_count("logistic", (8,), 1, loss="mse") == 9
    with pytest.raises(ScenarioError, match="1 classes cannot be told apart"):
        build("logistic", (8,), 1)
    with pytest.raises(ScenarioError, match="0 outputs predict nothing"):
        parameter_count("logistic", (8,), 0, loss="mse")


# Every model -----------------------------------------------------------------------------------

SHAPE, CLASSES = (24, 26, 3), 5  # images that every built-in model of them accepts
OF_TOKENS = {"token-mlp"}  # they take sequences [positions] and give logits at each position


@pytest.mark.parametrize("name", MODELS.names())
def test_a_model_says_what_it_is_and_its_parameters_are_fields(name: str) -> None:
    kind = MODELS[name]
    assert kind.name == name
    assert kind.description
    assert "\n" not in kind.description + kind.phrase
    assert kind.phrase.startswith(("a ", "an "))
    for parameter in kind.parameters:
        said = Training.model_fields[parameter].description or ""
        assert name in said.partition(":")[0].split(", ")


@pytest.mark.parametrize("name", MODELS.names())
def test_a_model_counts_what_it_has_and_gives_logits(name: str) -> None:
    tokens = name in OF_TOKENS
    shape = (6,) if tokens else SHAPE
    options = dict(Training(loss="token-cross-entropy" if tokens else "cross-entropy"))
    model = build(name, shape, CLASSES, **options)
    params = jax.eval_shape(model.init, jax.random.key(0))
    counted = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    assert parameter_count(name, shape, CLASSES, **options) == counted == model.parameters
    products = multiply_adds(name, shape, CLASSES, **options)
    assert products is None or products > 0
    samples = jnp.ones((3, *shape), jnp.int32 if tokens else jnp.float32)
    logits = model.apply(model.init(jax.random.key(1)), samples)
    assert logits.shape == ((3, *shape, CLASSES) if tokens else (3, CLASSES))
    assert jnp.isfinite(logits).all()
    same, other = (build(name, shape, CLASSES, **{**options, "l2": l2}) for l2 in (0.0, 0.5))
    assert same is model  # and so is what was compiled for it
    assert (other.name, other.l2) == (name, 0.5)


# Models of the user's own ----------------------------------------------------------------------


def linear(shape: tuple[int, ...], classes: int, **given: Any) -> Any:
    return (
        lambda key: jnp.zeros((math.prod(shape), classes)),
        lambda w, x: x.reshape(len(x), -1) @ w,
    )


@pytest.fixture
def registry() -> Iterator[Registry[ModelKind]]:
    with MODELS.scoped():
        yield MODELS


def test_an_own_model_may_give_nothing_but_its_functions(registry: Registry[ModelKind]) -> None:
    registry.register(ModelKind("own", "of mine", linear))
    assert parameter_count("own", (4, 2), 3) == 24
    assert multiply_adds("own", (4, 2), 3) is None
    model = build("own", (4, 2), 3, l2=0.25)
    assert (model.name, model.l2, model.parameters) == ("own", 0.25, 24)
    work = workload(Scenario(training={"model": "own"}))
    assert (work.parameters, work.operations) == (640, None)


def test_an_own_model_gets_its_parameters_and_may_be_replaced(
    registry: Registry[ModelKind],
) -> None:
    seen: list[dict[str, Any]] = []

    def noted(shape: tuple[int, ...], classes: int, **given: Any) -> Any:
        seen.append(given)
        return linear(shape, classes)

    fields = ("hidden", "batch_size")
    registry.register(ModelKind("own", "of mine", noted, parameters=fields))
    first = build("own", (4,), 3, (5,))
    assert seen == [{"hidden": (5,), "batch_size": 32}]
    registry.register(ModelKind("own", "another", linear))
    assert build("own", (4,), 3, (5,)) is not first


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"build": lambda shape, classes: 3}, "a int is not a model"),
        ({"build": lambda shape, classes: linear(shape, 7)}, r"not \(2, 3\): match its output"),
        ({"parameter_count": lambda shape, classes: 5}, "counts 5 parameters and has 24"),
        ({"parameters": ("depth",)}, "'depth' is not a field of the section training"),
    ],
)
def test_what_an_own_model_gives_is_checked(
    kind: dict[str, Any], words: str, registry: Registry[ModelKind]
) -> None:
    registry.register(ModelKind("own", "of mine", **{"build": linear, **kind}))
    with pytest.raises(ScenarioError, match=words) as caught:
        build("own", (4, 2), 3)
    assert "\n" not in str(caught.value)


def test_an_own_model_refuses_samples_before_it_is_built(registry: Registry[ModelKind]) -> None:
    def check(shape: tuple[int, ...], classes: int) -> None:
        raise ScenarioError(f"{len(shape)} axes are too many")

    def never(shape: tuple[int, ...], classes: int) -> Model:
        raise AssertionError

    registry.register(ModelKind("own", "of mine", never, check=check))
    with pytest.raises(ScenarioError, match="2 axes are too many"):
        parameter_count("own", (4, 2), 3)


def test_neither_sizes_nor_data_load_jax() -> None:
    program = (
        "import sys, joulemesh.data, joulemesh.models;"
        "joulemesh.models.parameter_count('cnn', (32, 32, 3), 10);"
        "joulemesh.data.spec('mnist');"
        "heavy = {'jax', 'pooch', 'flax'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
