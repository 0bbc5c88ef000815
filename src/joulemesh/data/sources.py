"""The published files of each data set: names, sizes, checksums, addresses.

Checksums are of a file's content once unpacked, so that a file may be kept raw, in ``.gz``, in
``.xz`` or in its tarball; the checksums of what is downloaded stand beside the addresses.
"""

from __future__ import annotations

__all__ = ["SOURCES", "Download", "Member", "Source"]

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """One original file: its name, and the size and SHA-256 of its unpacked content.

    Attributes:
        names: under which it is found in a folder, a compression suffix aside.
        size_bytes: of the content.
        sha256: of the content.
        pickle_md5: CIFAR-10 only: MD5 of the same batch in the "python version".
    """

    names: tuple[str, ...]
    size_bytes: int
    sha256: str
    pickle_md5: str = ""

    @property
    def name(self) -> str:
        """The official name."""
        return self.names[0]


@dataclass(frozen=True)
class Download:
    """One file to fetch: its name, the checksum as pooch writes it, and where it is offered."""

    name: str
    checksum: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A data set as its authors publish it.

    Attributes:
        name: of the data set.
        members: training files before test files; for IDX, images and labels in turn.
        folders: usual names of the folder, within the data folder.
        archives: tarballs that hold all members.
        downloads: what to fetch when nothing is found.
        mean: of the training pixels, per channel, on the scale 0..255.
        std: as ``mean``.
    """

    name: str
    members: tuple[Member, ...]
    folders: tuple[str, ...]
    archives: tuple[str, ...]
    downloads: tuple[Download, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


_IDX = (
    ("train", "images", 3, 47_040_016),
    ("train", "labels", 1, 60_008),
    ("t10k", "images", 3, 7_840_016),
    ("t10k", "labels", 1, 10_008),
)


def _idx_source(
    name: str,
    folders: tuple[str, ...],
    mirrors: tuple[str, ...],
    content_sha256: tuple[str, ...],
    gz_sha256: tuple[str, ...],
    mean: float,
    std: float,
) -> Source:
    stems = [f"{part}-{what}-idx{rank}-ubyte" for part, what, rank, _ in _IDX]
    members = tuple(
        # The second spelling is what some archivers make of the first.
        Member((stem, stem.replace("-idx", ".idx")), size, sha256)
        for stem, (_, _, _, size), sha256 in zip(stems, _IDX, content_sha256, strict=True)
    )
    downloads = tuple(
        Download(f"{stem}.gz", f"sha256:{sha256}", tuple(f"{m}{stem}.gz" for m in mirrors))
        for stem, sha256 in zip(stems, gz_sha256, strict=True)
    )
    return Source(name, members, folders, (), downloads, (mean * 255,), (std * 255,))


_MNIST = _idx_source(
    "mnist",
    ("mnist", "MNIST/raw"),
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    0.1307,
    0.3081,
)

_FASHION = _idx_source(
    "fashion-mnist",
    ("fashion-mnist", "FashionMNIST/raw"),
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    0.2860,
    0.3530,
)

_CIFAR_BATCHES = (
    (
        "data_batch_1",
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "c99cafc152244af753f735de768cd75f",
    ),
    (
        "data_batch_2",
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "d4bba439e000b95fd0a9bffe97cbabec",
    ),
    (
        "data_batch_3",
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "54ebc095f3ab1f0389bbae665268c751",
    ),
    (
        "data_batch_4",
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "634d18415352ddfa80567beed471001a",
    ),
    (
        "data_batch_5",
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "482c414d41f54cd18b22e5b47cb7c3cb",
    ),
    (
        "test_batch",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        "40351d587109b95175f43aff81a1287e",
    ),
)

_CIFAR = Source(
    "cifar-10",
    tuple(
        Member((f"{stem}.bin",), 30_730_000, sha256, md5) for stem, sha256, md5 in _CIFAR_BATCHES
    ),
    ("cifar-10", "cifar-10-batches-bin", "cifar-10-batches-py"),
    ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    (
        Download(
            "cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        ),
    ),
    tuple(255 * value for value in (0.4914, 0.4822, 0.4465)),
    tuple(255 * value for value in (0.2470, 0.2435, 0.2616)),
)

SOURCES = {source.name: source for source in (_MNIST, _FASHION, _CIFAR)}
