"""The second largest eigenvalue of a gossip matrix, for graphs of any size.

Small matrices are solved densely. Larger ones go to Lanczos iterations with the constant vector
projected out; where eigenvalues lie too close together for these to converge, to shift-invert.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

from joulemesh.aggregation.route import FloatArray
from joulemesh.errors import InfeasibleError

__all__ = ["SparseMatrix", "second_eigenvalue"]

SparseMatrix: TypeAlias = "csr_array[np.float64, tuple[int, int]]"

_DENSE = 600
"""Up to this many devices all eigenvalues are computed at once, which is then the quicker way."""

_SHIFT = 1e-11
"""Makes 1 − λ invertible; what it adds is taken off again."""

_INVERSE_VECTORS = 48


def second_eigenvalue(matrix: SparseMatrix | FloatArray) -> float:
    """The modulus max(|λ₂|, |λ_N|) of a symmetric stochastic matrix: its contraction.

    All eigenvalues up to 600 devices. Beyond, Lanczos with bounded effort; where that does not
    converge the gap is tiny, the graph has small separators, and a sparse factorisation (shift and
    invert) is cheap and finds it.

    Args:
        matrix: [N, N], symmetric, rows sum to 1, dense or sparse.

    Returns:
        A number in [0, 1]; 1 when the graph is not connected.

    Raises:
        InfeasibleError: neither way converged.

    >>> third = np.full(4, 1 / 3)  # Metropolis weights of a square
    >>> square = np.diag(third) + np.array([[0, 1, 0, 1], [1, 0, 1, 0]] * 2) / 3
    >>> round(second_eigenvalue(square), 12)
    0.333333333333
    """
    sparse: SparseMatrix = csr_array(matrix)
    n = sparse.shape[0]
    if n == 1:
        return 0.0
    if connected_components(sparse, directed=False)[0] > 1:
        return 1.0
    if n <= _DENSE:
        values = np.linalg.eigvalsh(sparse.toarray())
        found = max(abs(float(values[0])), abs(float(values[-2])))
    else:
        found = _sparse_second(sparse)
    # Zero comes out as rounding noise (complete graphs).
    return 0.0 if found < 1e-12 else found


def _sparse_second(matrix: SparseMatrix) -> float:
    # Gershgorin's discs: all eigenvalues lie in [lowest, 1]. Stretched to [−1, 1] the gap is not
    # lost in the tolerance, however little one tick changes.
    lowest = float(np.min(2.0 * matrix.diagonal() - 1.0))
    half = (1.0 - lowest) / 2.0
    stretched = matrix.copy()
    stretched.setdiag(matrix.diagonal() - (1.0 - half))
    stretched.data /= half
    top = _largest(stretched)
    if top is None:
        top = _largest_by_inverse(stretched)
    second = 1.0 - half * (1.0 - top)
    if -lowest <= second:
        return second
    bottom = _largest(-stretched)
    # Where the other end is not found, its bound serves: a few ticks too many, never too few.
    return max(second, -lowest if bottom is None else half * (1.0 + bottom) - 1.0)


def _largest(matrix: SparseMatrix) -> float | None:
    """Largest eigenvalue off the constant vector, by Lanczos; None if it does not converge."""
    n = matrix.shape[0]

    def apply(x: FloatArray) -> FloatArray:
        mean = float(np.mean(x))
        # The constant vector is an eigenvector and goes to the other end of the spectrum.
        moved = np.asarray(matrix @ (x.ravel() - mean), np.float64)
        return np.subtract(moved, mean)

    try:
        found = eigsh(
            LinearOperator((n, n), matvec=apply, dtype=np.float64),
            k=1,
            which="LA",
            v0=np.random.default_rng(0).standard_normal(n),
            tol=1e-10,
            maxiter=100,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return None
    return float(found[0])


def _largest_by_inverse(matrix: SparseMatrix) -> float:
    """The same by shift and invert: 1/(1 − λ) is largest where λ is closest to 1.

    The constant vector, whose λ is 1, is taken out before and after every solution: otherwise it
    drowns eigenvalues that lie close together (a wheel's). The tolerance is relative to 1 − λ.
    """
    n = matrix.shape[0]
    laplacian = -matrix
    laplacian.setdiag(1.0 + _SHIFT - matrix.diagonal())
    try:
        factors = splu(laplacian.tocsc())
        found = eigsh(
            LinearOperator(
                (n, n), matvec=lambda x: _centred(factors.solve(_centred(x))), dtype=np.float64
            ),
            k=1,
            ncv=min(n - 1, _INVERSE_VECTORS),
            which="LA",
            v0=_centred(np.random.default_rng(0).standard_normal(n)),
            tol=1e-9,
            maxiter=200,
            return_eigenvectors=False,
        )
    except (ArpackNoConvergence, RuntimeError) as cause:
        raise InfeasibleError(
            f"the spectral gap of the graph of {n} devices was not found; "
            "set plan.gossip_rounds to a number",
            code="gossip",
        ) from cause
    return 1.0 + _SHIFT - 1.0 / float(found[0])


def _centred(x: FloatArray) -> FloatArray:
    """A vector without its mean."""
    return np.asarray(x.ravel() - np.mean(x), np.float64)
