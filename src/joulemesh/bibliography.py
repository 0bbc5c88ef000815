"""Publications that more than one part of the package cites, Joulemesh itself, and data sets."""

from __future__ import annotations

__all__ = [
    "ALISTARH",
    "CIFAR_10",
    "DIABETES",
    "DIGITS",
    "FASHION_MNIST",
    "JOULEMESH",
    "KOLOSKOVA",
    "MCMAHAN",
    "MNIST",
    "ONOSZKO",
    "PAPER",
]

from joulemesh.citation import Citation

JOULEMESH = Citation(
    "The Joulemesh authors",
    "Joulemesh: decentralized federated learning on an energy and latency budget",
    None,
    names="{The Joulemesh authors}",
    kind="misc",
)
"""This software; its version is told where it is cited."""

PAPER = Citation(
    "Yan, Li",
    "Adaptive Decentralized Federated Learning in Energy and Latency Constrained Wireless Networks",
    2024,
    arxiv="2403.20075",
    names="Yan, Zhigang and Li, Dong",
)
"""What Joulemesh implements."""

MCMAHAN = Citation(
    "McMahan, Moore, Ramage, Hampson, Agüera y Arcas",
    "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    2017,
    "AISTATS",
    arxiv="1602.05629",
    names="McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and "
    "Agüera y Arcas, Blaise",
)

ONOSZKO = Citation(
    "Onoszko, Karlsson, Mogren, Listo Zec",
    "Decentralized Federated Learning of Deep Neural Networks on non-iid Data",
    2021,
    "FL-ICML workshop",
    arxiv="2107.08517",
    names="Onoszko, Noa and Karlsson, Gustav and Mogren, Olof and Listo Zec, Edvin",
)

KOLOSKOVA = Citation(
    "Koloskova, Stich, Jaggi",
    "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication",
    2019,
    "ICML",
    arxiv="1902.00340",
    names="Koloskova, Anastasia and Stich, Sebastian and Jaggi, Martin",
)

ALISTARH = Citation(
    "Alistarh, Grubic, Li, Tomioka, Vojnovic",
    "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
    2017,
    "NeurIPS",
    arxiv="1610.02132",
    names="Alistarh, Dan and Grubic, Demjan and Li, Jerry and Tomioka, Ryota and Vojnovic, Milan",
)

MNIST = Citation(
    "LeCun, Bottou, Bengio, Haffner",
    "Gradient-Based Learning Applied to Document Recognition",
    1998,
    "Proceedings of the IEEE 86(11):2278-2324",
    doi="10.1109/5.726791",
    names="LeCun, Yann and Bottou, Léon and Bengio, Yoshua and Haffner, Patrick",
)

FASHION_MNIST = Citation(
    "Xiao, Rasul, Vollgraf",
    "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
    2017,
    arxiv="1708.07747",
    names="Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
)

CIFAR_10 = Citation(
    "Krizhevsky",
    "Learning Multiple Layers of Features from Tiny Images",
    2009,
    "University of Toronto",
    names="Krizhevsky, Alex",
    kind="techreport",
)

DIABETES = Citation(
    "Efron, Hastie, Johnstone, Tibshirani",
    "Least Angle Regression",
    2004,
    "Annals of Statistics 32(2)",
    doi="10.1214/009053604000000067",
    names="Efron, Bradley and Hastie, Trevor and Johnstone, Iain and Tibshirani, Robert",
)
"""Where the measurements of ``diabetes`` were published."""

DIGITS = Citation(
    "Alpaydin, Kaynak",
    "Optical Recognition of Handwritten Digits",
    1998,
    "UCI Machine Learning Repository",
    doi="10.24432/C50P49",
    names="Alpaydin, E. and Kaynak, C.",
    kind="misc",
)
"""What scikit-learn's digits are taken from."""
