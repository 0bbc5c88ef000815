"""Partitions: one contract for every kind, hand-worked cases, and the skew that each promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Partition, PartitionKind, partition, regroup
from joulemesh.registries import PARTITIONS
from joulemesh.scenario import Training

Labels = NDArray[np.int64]
KINDS = PARTITIONS.names()
EXACT = tuple(kind for kind in KINDS if not PARTITIONS[kind].repeats)
ALPHAS = st.sampled_from([1e-6, 0.01, 0.5, 10.0, 1e6])


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Labels, int]:
    """Labels with gaps and unequal classes, and a number of devices that they can serve."""
    n = draw(st.integers(1, 60))
    classes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.choice(classes, n), draw(st.integers(1, n))


@pytest.mark.parametrize("kind", EXACT)
@given(case=labelled(), alpha=ALPHAS, seed=st.integers(0, 2**63))
@settings(max_examples=50, deadline=None)
def test_every_sample_goes_to_exactly_one_device_and_none_is_empty(
    kind: str, case: tuple[Labels, int], alpha: float, seed: int
) -> None:
    labels, devices = case
    dealt = partition(labels, devices, kind=kind, alpha=alpha, shards_per_device=1, seed=seed)
    assert sorted(dealt.order) == list(range(len(labels)))
    assert dealt.devices == devices
    assert dealt.sizes.min() >= 1
    assert dealt.sizes.sum() == len(labels)
    again = partition(labels, devices, kind=kind, alpha=alpha, shards_per_device=1, seed=seed)
    np.testing.assert_array_equal(dealt.order, again.order)
    np.testing.assert_array_equal(dealt.offsets, again.offsets)


@pytest.mark.parametrize("kind", EXACT)
@given(case=labelled(), alpha=ALPHAS, data=st.data())
@settings(max_examples=50, deadline=None)
def test_given_sizes_are_kept_exactly(
    kind: str, case: tuple[Labels, int], alpha: float, data: st.DataObject
) -> None:
    labels, devices = case
    spare = len(labels) - devices
    extra = data.draw(
        st.lists(st.integers(0, spare // devices), min_size=devices, max_size=devices)
    )
    sizes = [1 + more for more in extra]
    dealt = partition(labels, devices, kind=kind, alpha=alpha, sizes=sizes)
    assert dealt.sizes.tolist() == sizes
    assert len(set(dealt.order.tolist())) == sum(sizes)


@pytest.mark.parametrize("kind", EXACT)
def test_sizes_that_use_every_sample(kind: str) -> None:
    labels = np.repeat([0, 1, 2], [1, 2, 9])
    dealt = partition(labels, 3, kind=kind, alpha=0.01, sizes=[7, 1, 4], seed=5)
    assert dealt.sizes.tolist() == [7, 1, 4]
    assert sorted(dealt.order) == list(range(12))


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_matters_and_arrays_are_sealed(kind: str) -> None:
    labels = np.arange(200) % 10
    first, second = (partition(labels, 7, kind=kind, seed=seed) for seed in (0, 1))
    assert first.order.tolist() != second.order.tolist()
    assert first.order.dtype == np.int32
    assert first.offsets.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        first.order[0] = 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_what_it_is_and_its_parameters_are_fields(kind: str) -> None:
    found = PARTITIONS[kind]
    assert found.name == kind
    assert found.description
    assert "\n" not in found.description
    for parameter in found.parameters:
        assert kind in (Training.model_fields[parameter].description or "").split(":")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_sizes_and_is_a_function_of_the_seed(kind: str) -> None:
    labels = np.arange(60) % 7
    one, same = (partition(labels, 4, kind=kind, seed=2, sizes=[1, 2, 3, 4]) for _ in range(2))
    assert one.sizes.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(one.order, same.order)
    free = partition(labels, 4, kind=kind, seed=2)
    assert free.sizes.min() >= 1
    assert 0 <= free.order.min() <= free.order.max() < 60


def test_histogram_by_hand() -> None:
    held = Partition(np.array([0, 3, 1, 2]), np.array([0, 1, 4]))
    assert held.histogram([2, 0, 0, 1], 3).tolist() == [[0, 0, 1], [2, 1, 0]]


def test_iid_sizes_differ_by_one_at_most() -> None:
    assert partition(np.zeros(10, int), 4).sizes.tolist() == [3, 3, 2, 2]


@given(devices=st.integers(1, 12), shards=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_shards_are_runs_of_the_sorted_labels(devices: int, shards: int, seed: int) -> None:
    # All labels differ, so that a run of labels is a shard: device i holds at most `shards` runs.
    labels = np.random.default_rng(seed).permutation(60)
    dealt = partition(labels, devices, kind="shards", shards_per_device=shards, seed=seed)
    for device in range(devices):
        held = np.sort(labels[dealt.indices(device)])
        assert 1 + (np.diff(held) > 1).sum() <= shards


def test_shards_of_equal_classes_give_each_device_that_many_labels() -> None:
    labels = np.arange(400) % 10
    dealt = partition(labels, 20, kind="shards", shards_per_device=2, seed=3)
    assert (dealt.sizes == 20).all()
    assert (np.count_nonzero(dealt.histogram(labels, 10), axis=1) <= 2).all()


def test_tiny_alpha_leaves_a_device_with_one_class_and_huge_alpha_with_all_alike() -> None:
    labels = np.arange(4000) % 4
    lone = partition(labels, 8, kind="dirichlet", alpha=1e-3, sizes=[100] * 8)
    assert (lone.histogram(labels, 4).max(axis=1) == 100).all()
    alike = partition(labels, 8, kind="dirichlet", alpha=1e6).histogram(labels, 4)
    assert (abs(alike - 125) <= 2).all()


def test_dirichlet_mixes_have_the_variance_of_dirichlet() -> None:
    # Given sizes and ample supply, a device's label shares are Dirichlet(α): variance of one
    # share is (1/K)(1−1/K)/(Kα+1), plus the multinomial's (1/K)(1−1/K)·Kα/(Kα+1)/size.
    classes, alpha, devices, size = 5, 0.5, 2000, 50
    labels = np.arange(classes * devices * size) % classes  # five times what is asked for
    dealt = partition(
        labels, devices, kind="dirichlet", alpha=alpha, sizes=[size] * devices, seed=1
    )
    share = dealt.histogram(labels, classes) / size
    spread = 1 / classes * (1 - 1 / classes) / (classes * alpha + 1)
    expected = spread * (1 + classes * alpha / size)
    assert share.var() == pytest.approx(expected, rel=0.06)  # its standard error is near 1.5 %
    np.testing.assert_allclose(share.mean(axis=0), 1 / classes, atol=0.03)


def test_quantity_skew_has_uneven_sizes_and_even_labels() -> None:
    labels = np.arange(40_000) % 4
    uneven = partition(labels, 10, kind="quantity", alpha=0.5, seed=2)
    even = partition(labels, 10, kind="quantity", alpha=1e6, seed=2)
    assert uneven.sizes.max() > 4 * uneven.sizes.min()
    assert abs(even.sizes - 4000).max() < 40
    biggest = int(uneven.sizes.argmax())
    share = uneven.histogram(labels, 4)[biggest] / uneven.sizes[biggest]
    np.testing.assert_allclose(share, 0.25, atol=0.03)


def test_resample_serves_more_devices_than_samples() -> None:
    dealt = partition([0, 1, 1], 100_000, kind="resample", seed=4)
    assert (dealt.sizes == 1).all()
    assert np.bincount(dealt.order).min() > 32_000
    sized = partition([0, 1, 1], 2, kind="resample", sizes=[1, 9])
    assert sized.sizes.tolist() == [1, 9]
    assert partition(np.zeros(7, int), 2, kind="resample").sizes.tolist() == [4, 4]


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("sized", [False, True])
def test_a_hundred_thousand_devices(kind: str, sized: bool) -> None:
    labels = np.arange(150_000) % 10
    sizes = np.ones(100_000, int) if sized else None
    dealt = partition(labels, 100_000, kind=kind, shards_per_device=1, sizes=sizes)
    assert dealt.sizes.min() == 1
    assert dealt.sizes.sum() == (100_000 if sized else 150_000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"devices": 5}, "5 devices cannot share 4 samples.*'resample'"),
        ({"devices": 0}, "0 devices"),
        ({"kind": "by-colour"}, "partition 'by-colour' is unknown; known: iid, dirichlet"),
        ({"kind": "dirichlet", "alpha": 0.0}, "alpha = 0.0"),
        ({"kind": "quantity", "alpha": float("nan")}, "alpha = nan"),
        ({"kind": "shards", "shards_per_device": 0}, "shards_per_device = 0"),
        ({"kind": "shards", "shards_per_device": 3}, "need 6 samples but there are 4"),
        ({"kind": "shards", "shard": 3}, "'shard' is not a field of the section training"),
        ({"seed": -1}, "seed = -1"),
        ({"sizes": [3, 2]}, "5 samples in all but there are 4"),
        ({"sizes": [3, 0]}, "device 1 has 0 samples"),
        ({"sizes": [3]}, "must be 2 whole numbers"),
        ({"sizes": [1.5, 1.0]}, "must be 2 whole numbers"),
        ({"labels": []}, "labels must be"),
        ({"labels": [0.5, 1.0]}, "labels must be"),
        ({"labels": [-1, 1]}, "labels must be"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: dict[str, object], words: str) -> None:
    call: dict[str, object] = {"labels": [0, 1, 0, 1], "devices": 2, **arguments}
    with pytest.raises(ScenarioError, match=words) as caught:
        partition(**call)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("device", [-1, 2])
def test_a_device_that_does_not_exist(device: int) -> None:
    with pytest.raises(ScenarioError, match=r"devices are 0\.\.1"):
        partition([0, 1], 2).indices(device)


# Kinds of the user's own -----------------------------------------------------------------------


def own(deal: Any, **fields: Any) -> Partition:
    with PARTITIONS.scoped():
        PARTITIONS.register(PartitionKind("own", "of mine", deal, **fields))
        return partition([0, 1, 0, 1], 2, kind="own", seed=1)


def test_an_own_kind_gets_its_parameters_and_a_stream_of_the_seed() -> None:
    def deal(labels: Labels, devices: int, rng: Any, sizes: Any, *, alpha: float) -> Partition:
        assert labels.tolist() == [0, 1, 0, 1]
        assert (devices, sizes, alpha) == (2, None, 0.5)
        return regroup(labels, devices, rng)

    dealt = own(deal, parameters=("alpha",))
    assert sorted(dealt.indices(1)) == [1, 3]


@pytest.mark.parametrize(
    ("order", "sizes", "words"),
    [
        ([0, 1], [2, 0], "deals 2 samples to 1 of 2 devices"),
        ([0, 1], [2], "deals 2 samples to 1 of 2 devices"),
        ([0, 4], [1, 1], "deals the sample 4: samples are 0..3"),
        ([-1, 2], [1, 1], "deals the sample -1"),
        ([2, 2], [1, 1], "deals the sample 2 more than once"),
    ],
)
def test_what_an_own_kind_deals_is_checked(order: list[int], sizes: list[int], words: str) -> None:
    offsets = np.cumsum([0, *sizes])
    with pytest.raises(ScenarioError, match=words) as caught:
        own(lambda *_: Partition(np.array(order), offsets))
    assert "\n" not in str(caught.value)
    if "once" in words:
        assert own(lambda *_: Partition(np.array(order), offsets), repeats=True).devices == 2


def test_an_own_kind_that_does_not_keep_sizes_or_gives_something_else_is_refused() -> None:
    with PARTITIONS.scoped():
        PARTITIONS.register(
            PartitionKind("own", "of mine", lambda labels, n, rng, sizes: regroup(labels, n, rng))
        )
        with pytest.raises(ScenarioError, match="gives device 0 2 samples, and 1 are asked for"):
            partition([0, 1, 0, 1], 2, kind="own", sizes=[1, 3])
    with pytest.raises(ScenarioError, match="gives a list: its deal must give a Partition"):
        own(lambda *_: [0, 1])
    with pytest.raises(ScenarioError, match="'colour' is not a field of the section training"):
        own(lambda *_: [0, 1], parameters=("colour",))


def test_the_phrase_of_an_own_kind_names_its_parameters_only() -> None:
    said = PartitionKind("own", "of {mine}", regroup).phrase
    assert said.format_map({}) == "samples are split by the partition own (of {mine})"
    with pytest.raises(ScenarioError, match=r"names alpha, which is not among .* \(none\)"):
        PartitionKind("own", "of mine", regroup, phrase="by Dirichlet({alpha:g})")


def test_owners_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ScenarioError, match=r"1 samples for devices 0\.\.0 cannot be dealt to 2"):
        regroup(np.array([0, -1]), 2, rng)
    with pytest.raises(ScenarioError, match=r"devices 0\.\.2 cannot be dealt to 2 devices"):
        regroup(np.array([0, 2]), 2, rng)
    assert regroup(np.array([0, 0, 0]), 2, rng).sizes.tolist() == [2, 1]
