"""Operations and bytes of one device-step, counted, so that a speed can be held against limits.

A device-step is one SGD step of one device: a batch forward, back, and the update. A layer that
takes K numbers to O at each of M = batch × positions places is a product [M, K] @ [K, O]:

    forward                y = x @ w        2·M·K·O operations
    gradient of w          xᵀ @ dy          2·M·K·O
    gradient of x          dy @ wᵀ          2·M·K·O, not needed for the first layer

Biases, ReLU, pooling, softmax and the update itself (2 operations per parameter) are left out:
under 2 % of the operations of the MLP, and of the CNN.

Bytes are the least that must pass between memory and the processor when the parameters of all
devices together do not fit the cache (at N = 20 they may, and a limit by memory then says
nothing). Weights are read for the forward pass; the update reads them again and writes them. That
is three times the parameters if the gradient goes straight into the update, five times if it is
written and read in between. The gradient of x reads the later layers once more, which is counted:
for the MLP 784-200-10 that is 1 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from benchmarks.work import Work
from joulemesh.data import spec
from joulemesh.models.kinds import CONV_WIDTHS, FC_WIDTH

FLOAT = 4
INDEX = 4  # of a sample, in the list of a device's samples
LABEL = 4


@dataclass(frozen=True)
class Layer:
    """A product at ``positions`` places of each sample."""

    positions: int
    inputs: int
    outputs: int
    patches: bool = False  # inputs are 3x3 neighbourhoods, each number standing in nine of them
    pooled: int = 1  # outputs of which one is kept

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs + self.outputs


def layers(work: Work) -> list[Layer]:
    """The layers of a work's model.

    >>> sum(layer.parameters for layer in layers(Work("cifar-10", "cnn")))
    73418
    """
    shape = spec(work.dataset).shape
    if work.model == "mlp":
        features = shape[0] * shape[1] * shape[2]
        return [Layer(1, k, o) for k, o in pairwise((features, *work.hidden, 10))]
    side, found = shape[0], []
    for channels, outputs in pairwise((shape[2], *CONV_WIDTHS)):
        side -= 2 + side % 2  # the odd row and column that pooling drops are not computed
        found.append(Layer(side * side, 9 * channels, outputs, patches=True, pooled=4))
        side //= 2
    flat = side * side * CONV_WIDTHS[-1]
    return [*found, Layer(1, flat, FC_WIDTH), Layer(1, FC_WIDTH, 10)]


def operations(work: Work) -> int:
    """Operations of the products of one device-step.

    >>> operations(Work("mnist", "mlp", (200,)))  # 4·32·(784·200 + 200·10) + 2·32·200·10
    20454400
    """
    total = 0
    for number, layer in enumerate(layers(work)):
        product = 2 * work.batch * layer.positions * layer.inputs * layer.outputs
        total += product * (2 if number == 0 else 3)
    return total


def parameter_bytes(work: Work, *, gradient_stored: bool = False) -> int:
    """Bytes of parameters (float32) that pass in one device-step: 3 (or 5) times all of them,
    and the layers after the first once more.

    >>> parameter_bytes(Work("mnist", "mlp", (200,)))  # 3·4·159,010 + 4·2,010
    1916160
    """
    counts = [layer.parameters for layer in layers(work)]
    return FLOAT * ((5 if gradient_stored else 3) * sum(counts) + sum(counts[1:]))


def batch_bytes(work: Work) -> int:
    """Bytes of the batch as stored (one per pixel), with indices and labels, read once.

    >>> batch_bytes(Work("mnist", "mlp", (200,)))
    25344
    """
    shape = spec(work.dataset).shape
    return work.batch * (shape[0] * shape[1] * shape[2] + INDEX + LABEL)


def activation_bytes(work: Work) -> int:
    """Bytes of what convolutions leave in memory between kernels, with patches as matrices.

    Per convolution, all in the dtype of the products: the patches are written and read forward,
    read for the gradient of w, and their gradient is written and read (not for the first); the
    outputs are written and read by the pooling, and so are their gradients; what pooling keeps
    is read to be cut into patches, and counted with those. Dense layers (and so the MLP) leave a
    few kB, which the cache holds: 0.

    >>> activation_bytes(Work("mnist", "mlp", (200,)))
    0
    """
    size = 2 if work.precision == "bfloat16" else FLOAT
    total = 0
    for number, layer in enumerate(layers(work)):
        if not layer.patches:
            continue
        outputs_of_a_batch = work.batch * layer.positions
        total += size * outputs_of_a_batch * layer.inputs * (3 if number == 0 else 5)
        total += size * outputs_of_a_batch * layer.outputs * 4
    return total


def step_bytes(work: Work, *, gradient_stored: bool = False) -> int:
    """Bytes of one device-step: parameters, batch, and activations that do not fit the cache."""
    stored = parameter_bytes(work, gradient_stored=gradient_stored)
    return stored + batch_bytes(work) + activation_bytes(work)


def factored(work: Work) -> tuple[int, int]:
    """Operations and least bytes of one device-step with the input layer factored.

    From a shared start a device's input weights are W + Xᵀ D (`training/jax/local_sgd.py`): of
    each batch [B, K] the products with W and, in the mean, with D cost what a forward pass and a
    gradient cost; new are the products of all m = rounds · B samples with each other (X Xᵀ) and of
    those with D. X is written once as float32 and read by three products; output, products of
    samples and D are written and read once, D by every later step.

    >>> factored(Work("mnist", "mlp", (200,)))
    (30530560, 704672)
    """
    first, *rest = layers(work)
    batch, samples = work.batch, work.rounds * work.batch
    counted = 2 * batch * (2 * first.inputs * first.outputs + samples * first.inputs)
    counted += 2 * batch * samples * first.outputs
    counted += sum(6 * batch * layer.inputs * layer.outputs for layer in rest)
    numbers = 4 * batch * first.inputs + 2 * batch * (first.outputs + samples)
    numbers += (batch + samples) * first.outputs + 4 * sum(layer.parameters for layer in rest)
    return counted, FLOAT * numbers + batch_bytes(work)
