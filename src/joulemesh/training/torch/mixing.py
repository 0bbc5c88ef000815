"""What an exchange does to stacked parameters, as the schedule's mixing says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.aggregation.bits import bits_of
from joulemesh.base.errors import ScenarioError
from joulemesh.training.arrays import ROUND
from joulemesh.training.schedule import RoundedExchange, RoundedExchanges, Schedule

Tensor: TypeAlias = Any
Owing: TypeAlias = dict[str, Tensor]
"""What quantised averages remember of a seed: the last one, and what each device owes."""


class Mixer:
    """Carries out the exchanges of a schedule."""

    def __init__(
        self,
        torch: Any,
        schedule: Schedule,
        weights: NDArray[np.float64],
        *,
        by_samples: bool,
        own: bool = False,
    ) -> None:
        self._torch, self._schedule, self.weights, self._own = torch, schedule, weights, own
        # A dense matrix is the plain mean itself; a sparse one leaves its place to the mean.
        self._instead, self._by_samples = schedule.kind == "sparse" or by_samples, by_samples
        self._latest: dict[str, tuple[bytes, Tensor]] = {}
        if schedule.wire and schedule.kind != "messages" and not own:
            raise ScenarioError(
                f"messages are rounded to {schedule.wire}, and a schedule of mixing that is "
                f"{schedule.kind} has no messages: give it RoundedExchanges"
            )

    def averages(self, iteration: int) -> bool:
        """Does every active device take the weighted mean in an iteration (from 0)?"""
        exact = bool(self._schedule.exact[iteration]) and self._instead
        if self._own:
            return False
        return self._schedule.kind == "mean" or exact

    @property
    def agree(self) -> NDArray[np.bool_]:
        """bool [n]: do all devices hold one model after each iteration?"""
        n, exchanged = self._schedule.iterations, self._schedule.exchanged
        always = all(self.averages(t) for t in range(n) if exchanged[t])
        return np.asarray(exchanged & always)

    def share(self, iteration: int) -> NDArray[np.float64]:
        """float64 [S, N]: each device's weight in the mean of those that are active."""
        weights = np.where(self._schedule.active[iteration], self.weights, 0.0)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def begin(self, params: dict[str, Tensor]) -> list[Owing]:
        """What exchanges remember of each seed before the first iteration."""
        if self._own or not bits_of(self._schedule.wire):
            return []
        whole = self._whole(params)
        return [{"agreed": one[0].clone(), "owed": self._torch.zeros_like(one)} for one in whole]

    def mix(self, iteration: int, params: dict[str, Tensor], memory: Sequence[Owing] = ()) -> None:
        """Exchange the parameters of all devices in place; [S, N, ...] each."""
        active = self._schedule.active[iteration]
        if memory and isinstance(self._schedule.mixing, RoundedExchanges):
            self._mix_quantised(self._schedule.mixing.at(iteration), iteration, params, memory)
            return
        if isinstance(self._schedule.mixing, RoundedExchanges):
            self._mix_rounded(self._schedule.mixing.at(iteration), active, params)
            return
        if self._schedule.parts > 1:
            self._mix_parts(iteration, params)
            return
        how = self._operator(iteration, next(iter(params.values())))
        here = None if active.all() else self._here(active, next(iter(params.values())).device)
        for leaf in params.values():
            flat = leaf.reshape(*leaf.shape[:2], -1)
            mixed = how(flat)
            if here is None:
                flat.copy_(mixed)
            else:
                flat[:, here] = mixed.expand(flat.shape)[:, here]

    def _here(self, active: NDArray[np.bool_], device: Any) -> Tensor:
        return self._kept(
            ("here", active.tobytes()),
            lambda: self._torch.as_tensor(np.flatnonzero(active)).to(device),
        )

    def _kept(self, key: tuple[str, bytes], make: Callable[[], Tensor]) -> Tensor:
        """What was last made for a purpose, made anew if it is of something else: copying waits."""
        purpose, of = key
        if self._latest.get(purpose, (None, None))[0] != of:
            self._latest[purpose] = (of, make())
        return self._latest[purpose][1]

    def give(self, iteration: int, params: dict[str, Tensor], memory: Sequence[Owing] = ()) -> None:
        """Let newcomers begin an iteration with what others ended the one before with."""
        givers = self._schedule.begins_with(iteration, iteration + 1)[0]
        newcomers = np.flatnonzero(givers != np.arange(len(givers)))
        if not len(newcomers):
            return
        if memory and isinstance(self._schedule.mixing, RoundedExchanges):
            whole = self._whole(params)  # they begin with the average since which changes are sent
            for i in newcomers.tolist():
                whole[:, i] = self._torch.stack([one["agreed"] for one in memory])
            self._put(params, whole)
            return
        for leaf in params.values():
            to, of = (self._torch.as_tensor(x).to(leaf.device) for x in (newcomers, givers))
            given = leaf[:, of[to]]
            leaf[:, to] = self._rounded(given) if self._schedule.wire else given

    def _whole(self, params: dict[str, Tensor]) -> Tensor:
        """Parameters as a device sends them, [S, N, P]."""
        return self._torch.cat([params[name].flatten(2) for name in sorted(params)], dim=2)

    def _put(self, params: dict[str, Tensor], whole: Tensor) -> None:
        """Take up parameters [S, N, P]."""
        first = 0
        for leaf in (params[name] for name in sorted(params)):
            size = leaf[0, 0].numel()
            leaf.copy_(whole[:, :, first : first + size].reshape(leaf.shape))
            first += size

    def _mix_rounded(
        self, steps: RoundedExchange, active: NDArray[np.bool_], params: dict[str, Tensor]
    ) -> None:
        """Carry out an exchange whose messages are rounded, operation by operation."""
        whole = self._whole(params)
        ended, _ = self._operated(steps, whole)
        for i in np.flatnonzero(active).tolist():
            whole[:, i] = ended[:, i]
        self._put(params, whole)

    def _mix_quantised(
        self,
        steps: RoundedExchange,
        iteration: int,
        params: dict[str, Tensor],
        memory: Sequence[Owing],
    ) -> None:
        """Average what has changed since the last average, with what devices owe."""
        torch, active = self._torch, self._schedule.active[iteration]
        agreed = torch.stack([one["agreed"] for one in memory])
        owed = torch.stack([one["owed"] for one in memory])
        whole = self._whole(params)
        change = whole - agreed[:, None]
        if self._by_samples:
            share = self.share(iteration) * active.sum()
            change = change * torch.as_tensor(share[..., None]).to(change.device, change.dtype)
        ended, still = self._operated(steps, change + owed)
        here = np.flatnonzero(active).tolist()
        agreed = agreed + ended[:, here[0]]
        for i in here:
            whole[:, i], owed[:, i] = agreed, still[:, i]
        for one, mean, debts in zip(memory, agreed, owed, strict=True):
            one["agreed"], one["owed"] = mean.clone(), debts.clone()
        self._put(params, whole)

    def _operated(self, steps: RoundedExchange, whole: Tensor) -> tuple[Tensor, Tensor]:
        """What the devices [S, N, P] end with, and what each of them owes, if any does."""
        ended, still = self._torch.empty_like(whole), self._torch.zeros_like(whole)
        for c, at in enumerate(np.array_split(np.arange(whole.shape[2]), steps.parts)):
            if not len(at):
                continue
            part = slice(at[0], at[-1] + 1)
            held: list[Tensor] = [whole[:, i, part] for i in range(whole.shape[1])]
            held += [None] * (steps.registers - len(held))
            for k in range(steps.length):
                made = held[steps.first[c, k]]
                if steps.sign[c, k]:
                    made = made + float(steps.sign[c, k]) * held[steps.second[c, k]]
                made = made * float(steps.factor[c, k]) / float(steps.divisor[c, k])
                held[steps.target[c, k]] = self._rounded(made) if steps.rounds[c, k] else made
            for i in range(whole.shape[1]):
                ended[:, i, part] = held[steps.output[c, i]]
                if steps.owed.size:
                    still[:, i, part] = held[steps.owed[c, i]]
        return ended, still

    def _rounded(self, values: Tensor) -> Tensor:
        return ROUND[self._schedule.wire](values)

    def _mix_parts(self, iteration: int, params: dict[str, Tensor]) -> None:
        """Mix parts of the parameters, as one vector, that have a matrix each."""
        torch, leaves = self._torch, list(params.values())
        whole = torch.cat([leaf.flatten(2) for leaf in leaves], dim=2)
        matrices = self._schedule.matrices(iteration, iteration + 1)[0]
        here = torch.as_tensor(np.flatnonzero(self._schedule.active[iteration])).to(whole.device)
        cuts = np.array_split(np.arange(whole.shape[2]), len(matrices))
        for matrix, at in zip(matrices, cuts, strict=True):
            rows = torch.as_tensor(np.array(matrix), dtype=whole.dtype).to(whole.device)[here]
            if len(at):
                whole[:, here, at[0] : at[-1] + 1] = rows @ whole[:, :, at[0] : at[-1] + 1]
        first = 0
        for leaf in leaves:
            size = leaf[0, 0].numel()
            leaf.copy_(whole[:, :, first : first + size].reshape(leaf.shape))
            first += size

    def once(self, iteration: int, values: Tensor) -> Tensor:
        """W times the devices' values [N, P], once, with the W of an iteration."""
        if self._schedule.kind == "sparse":
            return self._sparse(iteration, partial(_placed, self._torch, values), values) @ values
        return self._operator(iteration, values)(values)

    def _operator(self, iteration: int, like: Tensor) -> Any:
        """[S, N, P] -> that after the exchange, right for the active devices."""
        placed = partial(_placed, self._torch, like)
        if self.averages(iteration):
            found = self.share(iteration)[:, None]
            share = self._kept(("share", found.tobytes()), lambda: placed(found))
            return lambda flat: share @ flat
        if self._schedule.kind == "dense":
            dense = self._dense(iteration)
            matrix = self._kept(("dense", dense.tobytes()), lambda: placed(dense))
            return lambda flat: matrix @ flat
        lists = self._sparse(iteration, placed, like)
        return lambda flat: self._repeated(lists, flat)

    def _dense(self, iteration: int) -> NDArray[np.float64]:
        matrix = self._schedule.matrices(iteration, iteration + 1)[0]
        heard = np.where(self._schedule.active[iteration], matrix, 0.0)
        # Weight of departed neighbours is moved to the diagonal, so that rows still sum to 1.
        return np.asarray(heard + np.diag(matrix.sum(axis=1) - heard.sum(axis=1)))

    def _sparse(self, iteration: int, placed: Any, like: Tensor) -> Tensor:
        active = self._schedule.active[iteration]

        def made() -> Tensor:
            given: Any = self._schedule.mixing
            rows = sparse.coo_array(given)
            # Weight of departed neighbours stays with the device.
            at = np.stack([rows.row, np.where(active[rows.col], rows.col, rows.row)])
            with warnings.catch_warnings():  # PyTorch 2.11 asks to be told what it is told here
                warnings.filterwarnings("ignore", "Sparse invariant checks")
                lists = self._torch.sparse_coo_tensor(
                    self._torch.as_tensor(at.astype(np.int64)),
                    placed(rows.data).cpu(),
                    rows.shape,
                    check_invariants=True,
                )
            return lists.coalesce().to(like.device)

        return self._kept(("sparse", active.tobytes()), made)

    def _repeated(self, lists: Tensor, flat: Tensor) -> Tensor:
        seeds, devices = flat.shape[:2]
        wide = flat.transpose(0, 1).reshape(devices, -1)
        for _ in range(self._schedule.mixing_rounds):
            wide = lists @ wide
        return wide.reshape(devices, seeds, -1).transpose(0, 1)


def _placed(torch: Any, like: Tensor, array: NDArray[Any]) -> Tensor:
    """An array as a tensor of the type and on the processor of another."""
    return torch.as_tensor(np.ascontiguousarray(array), dtype=like.dtype).to(like.device)
