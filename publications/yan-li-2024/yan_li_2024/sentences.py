"""The paper's sentences that can be tested, quoted, and the tests that decide each of them.

Sections III and IV: statements about formulas and link energies, decided exactly; Section V:
results of simulations, decided over seeds. LaTeX is written out; nothing else is changed.
"""

from __future__ import annotations

__all__ = ["SENTENCES", "claim"]

from dataclasses import replace
from typing import Any

from yan_li_2024.claims import Claim

_THEORY = (
    Claim(
        "table1-minimum",
        "table1",
        "IV-C, Table I",
        "if the DFL system want to achieve a better performance, it prefer to allocate less "
        "rounds of local training at the beginning",
        "excess over (1, 1, 3) of the second-best of six allocations, in (P42), for a from "
        "{least:g} to {most:g}",
        "%",
        "True of the objective (P42). The objective itself rests on one loose step of eq. p14, "
        "which drops a factor 1 − a^τ: kept, the bound does not depend on the allocation at all.",
    ),
    Claim(
        "p42-nonconvex",
        "table1",
        "IV-C",
        "the coupled τ_{i,t} in (P42a) leads to the non-convexity of (P42)",
        "random lines along which (P42) bends downwards, of {lines}",
        "lines",
        "(P42) is a sum of exponentials of linear functions under linear constraints, hence "
        "convex; only integrality is not, and it is benign.",
    ),
    Claim(
        "theorem4-optimal",
        "table1",
        "IV-C, Theorem 4",
        "The optimal solutions of (P5) can be obtain by the following theorem, which are the "
        "optimized solutions of (P42)",
        "excess of Theorem 4's value of (P42), corrected, over the exact minimum",
        "%",
        "The exact integer minimum is known: one round each, the surplus filled in from the last "
        "iteration backwards up to the cap, which makes every suffix sum as large as it can be. "
        "Theorem 4 spreads rounds more evenly.",
        "<= 0",
    ),
    Claim(
        "theorem4-cases",
        "table1",
        "IV-C, Theorem 4",
        "The optimal solutions of (P5) are given by (optt)",
        "share of the intervals of eq. optt's middle cases that are empty",
        "%",
        "As printed the weights increase with t, so every interval of the middle cases runs "
        "backwards, and the first and last cases overlap.",
        "<= 0",
    ),
    Claim(
        "theorem4-increasing",
        "table1",
        "IV-C",
        "the expression of τ*_{i,t} is an increasing function of t when δ_{i,E} is limited",
        "steps from one iteration to the next in which the corrected τ_t falls",
        "steps",
        "Holds for the weights of eq. optt, with ties where rounds are whole.",
        "<= 0",
    ),
    Claim(
        "infinite-budget",
        "table1",
        "IV-C",
        "if the recourse budgets are infinity, we find that τ*_{i,t} = 1",
        "(P42) with one round in every iteration over (P42) with as many as the cap allows",
        "times",
        "(P42) decreases with every additional round: without limits on the total its minimum is "
        "the cap in every iteration, not 1.",
        "<= 1",
    ),
    Claim(
        "bound-vanishes",
        "table1",
        "III-C, Remark 3",
        "Thus, the ε in Corollary 1 can be made arbitrarily small.",
        "share of the initial gap that is left after 10⁶ iterations with η = 1/(Mt⁴), m/M = 0.1, "
        "τ = 5",
        "%",
        "With η = 1/(Mt⁴) the rates sum to a constant, so training stops short: A_1 tends to a "
        "positive share of the initial gap. A constant η is needed.",
        "< 0.1",
    ),
    Claim(
        "linear-rate",
        "table1",
        "III-C, Corollary 1",
        "in the i.i.d. case, the DFL converges in a linear rate",
        "growth of the corollary's T = O(1/ε) from ε = 0.1 to 0.01; a linear rate, T = O(ln 1/ε), "
        "has 2",
        "times",
        "By definition: a linear rate takes O(ln 1/ε) iterations, and O(1/ε) are sublinear. Under "
        "the stated η not even O(1/ε) follows, because the last term of eq. rate grows like t³.",
        "<= 2",
    ),
    Claim(
        "devices-amplify",
        "table1",
        "III-B",
        "in the non-i.i.d. case, a larger N will amplify the impact of δ_m on the performance",
        "growth of the norm ‖P − I‖², for which φ(N) stands, from N = 2 to N = 50",
        "%",
        "P − I is minus an orthogonal projector: its squared norm is 1 for every N. The printed "
        "φ(N) = k(N−1)(2N−1)/N is neither that nor the Frobenius norm.",
    ),
)

_ENERGY = (
    Claim(
        "corollary2",
        "fig7",
        "IV-B, Corollary 2",
        "The aggregation scheme based on MST consumes less energy than the scheme based on "
        "Ring-AllReduce",
        "joules of the paper's ring over the tree's, for every topology, N and placement",
        "times",
        "Removing the dearest link of a ring leaves a spanning tree, and the paper's ring passes "
        "whole vectors N−1 times.",
        "> 1",
    ),
    Claim(
        "corollary2-chunked",
        "fig7",
        "IV-B, Corollary 2",
        "The aggregation scheme based on MST consumes less energy than the scheme based on "
        "Ring-AllReduce",
        "how many more joules Ring-AllReduce in N chunks takes than the tree, for every topology, "
        "N and placement",
        "%",
        "Ring-AllReduce proper is N/2 times cheaper than the paper's ring, and the corollary "
        "survives: a ring without its dearest link is a spanning tree, and costs at most the "
        "share (N−1)/N of it that the chunks cost.",
    ),
    Claim(
        "tree-slower",
        "fig7",
        "IV-B",
        "the aggregation scheme in Case 1 is a sequential aggregation approach, thereby "
        "facilitating a potentially slower consensus time compared with the aggregation scheme "
        "based on Ring-AllReduce or randomized gossip algorithm",
        "seconds of the tree's exchange over those of the paper's ring and of gossip to ε",
        "times",
        "Eq. tcp gives the tree two steps and hides its depth; here every scheme is timed by its "
        "critical path. The paper's ring passes whole vectors N−1 times.",
        "> 1",
    ),
    Claim(
        "tree-slower-chunked",
        "fig7",
        "IV-B",
        "the aggregation scheme in Case 1 is a sequential aggregation approach, thereby "
        "facilitating a potentially slower consensus time compared with the aggregation scheme "
        "based on Ring-AllReduce or randomized gossip algorithm",
        "seconds of the tree's exchange over those of Ring-AllReduce in N chunks",
        "times",
        "Ring-AllReduce proper is N/2 times faster than the paper's ring, and the tree has depth: "
        "the trade-off that the sentence hints at.",
        "> 1",
    ),
    Claim(
        "gossip-dearer",
        "fig7",
        "V-B.3",
        "the proposed schemes based on the MST and Ring-AllReduce consistently incur lower energy "
        "costs than the randomized gossip algorithm",
        "joules of gossip over those of the tree and of the paper's ring, K by the spectral gap, "
        "for every ε, N, topology and placement",
        "times",
        "K that reaches ε needs the spectral gap of the graph; then gossip on sparse graphs is "
        "dear by construction.",
        "> 1",
    ),
    Claim(
        "gossip-dearer-printed",
        "fig7",
        "V-B.3",
        "the proposed schemes based on the MST and Ring-AllReduce consistently incur lower energy "
        "costs than the randomized gossip algorithm",
        "constant c of K = ⌈c ln 1/ε⌉ above which gossip costs more than tree and ring in every "
        "case, by the paper's equations",
        "",
        "Eq. s1 prints K = O(ln 1/ε) without its constant, so the paper's equations decide "
        "neither way. With c = 1 gossip uses every link 3 times, less often than the ring's "
        "N−1.",
        "",
    ),
    Claim(
        "smaller-epsilon",
        "fig7",
        "V-B.3",
        "when the randomized gossip algorithm requires a less consensus error (e.g., smaller ε), "
        "it needs to finish more rounds of communication in one iteration, which leads to a "
        "higher energy costs",
        "how many more joules ε = {less:g} takes than ε = {more:g}, K by the spectral gap, for "
        "every N and topology",
        "%",
        "ln(1/0.05)/ln(1/0.06) = 1.065: about six per cent.",
    ),
    Claim(
        "smaller-epsilon-printed",
        "fig7",
        "V-B.3",
        "when the randomized gossip algorithm requires a less consensus error (e.g., smaller ε), "
        "it needs to finish more rounds of communication in one iteration, which leads to a "
        "higher energy costs",
        "constant c of K = ⌈c ln 1/ε⌉ above which ε = {less:g} always needs more rounds than ε = "
        "{more:g}",
        "",
        "Eq. s1 prints K = O(ln 1/ε) without its constant. For small c both errors can be rounded "
        "up to the same K (with c = 1 to 3); for large c they cannot, and without rounding "
        "they never agree.",
        "",
    ),
    Claim(
        "energy-grows",
        "fig7",
        "V-B.3",
        "the energy costs of all schemes increase with the number of devices",
        "how many more joules each N takes than the next smaller one, for every scheme, topology "
        "and placement",
        "%",
        "In a square of fixed size more devices stand closer together: links become cheaper while "
        "their number grows.",
    ),
)

_LEARNING = (
    Claim(
        "fig4-converges",
        "fig4",
        "V-B.1",
        "Despite diverse datasets and models, consistent convergence behavior is observed.",
        "final accuracy − accuracy at the first evaluation, every scheme, model and topology",
        "points",
        "",
    ),
    Claim(
        "fig4-exact-better",
        "fig4",
        "V-B.1",
        "when the aggregation scheme based on the MST or the Ring-AllReduce algorithm is applied "
        "(Case 1 or Case 2 with ring topology), DFL can achieve a better performance after it "
        "converges",
        "final accuracy, exact averaging − gossip, every K, model and topology",
        "points",
        "Accuracy is the mean of the devices' own models, since gossip leaves them apart; that of "
        "their mean hardly differs between schemes. With i.i.d. data and enough ticks the "
        "difference drowns in noise.",
    ),
    Claim(
        "fig4-more-rounds",
        "fig4",
        "V-B.1",
        "the randomized gossip algorithm that considers larger K_t in the aggregation achieves "
        "higher accuracy",
        "final accuracy, larger K − next smaller K, every model and topology",
        "points",
        "Once the models agree, more exchanges have nothing to add.",
    ),
    Claim(
        "fig5-fewer",
        "fig5",
        "V-B.1",
        "Compared with the DFL with more devices, DFL can achieve a better performance when it "
        "has fewer devices",
        "final accuracy, N = {few} − N = {many}, one data set shared out among them",
        "points",
        "Both have the same data in all, hence fewer samples on each device where there are more. "
        "With as many samples per device whatever N, fewer devices have less data: that measures "
        "data, not N.",
    ),
    Claim(
        "fig5-gap-stays",
        "fig5",
        "V-B.1",
        "this interval will not decrease as T further increases after T is large enough",
        "gap between N = {few} and N = {many} after {end} iterations − after {half}, one data set "
        "shared out (up to 0.5 points of decrease count as none)",
        "points",
        "Only a gap can stay: where none is established, the sentence cannot be decided.",
        "> -0.5",
    ),
    Claim(
        "fig6-fewer-faster",
        "fig6",
        "V-B.2",
        "fewer devices (e.g., N = 15) lead to faster convergence compared to configurations with "
        "more devices (e.g., N = 30), consistent with the insights from Corollary 1",
        "iterations to accuracy {target:g}, N = {many} − N = {few}, exact averaging",
        "iterations",
        "Exact averaging makes ring and quasi-ring the same learning. On i.i.d. data more devices "
        "average more gradients: nothing in the corrected bound slows them down.",
    ),
    Claim(
        "fig6-fewer-faster-gossip",
        "fig6",
        "V-B.2",
        "fewer devices (e.g., N = 15) lead to faster convergence compared to configurations with "
        "more devices (e.g., N = 30), consistent with the insights from Corollary 1",
        "iterations to accuracy {target:g}, N = {many} − N = {few}, one Metropolis round in place "
        "of exact averaging, ring and quasi-ring",
        "iterations",
        "Where averaging is not exact a longer ring mixes more slowly, so topology and N matter.",
    ),
    Claim(
        "fig8-adaptive-best",
        "fig8",
        "V-B.4",
        "the proposed adaptive rounds of local training outperform others",
        "final accuracy, adaptive − fixed and − inverse, T = {n}, i.i.d. labels",
        "points",
        "In the corrected bound the order of the rounds hardly counts; on quadratics late rounds "
        "are the worst. Whatever a schedule does last counts most for its final point: compare "
        "the whole curves.",
    ),
    Claim(
        "fig8-adaptive-best-skewed",
        "fig8",
        "V-B.4",
        "the proposed adaptive rounds of local training outperform others",
        "final accuracy, adaptive − fixed and − inverse, T = {n}, {skew} labels",
        "points",
        "Many rounds in one iteration on skewed labels can pull the devices apart; the adaptive "
        "schedule ends with such iterations, so that no averaging of short steps follows.",
    ),
    Claim(
        "fig8-adaptive-loss",
        "fig8",
        "V-B.4",
        "the proposed adaptive rounds of local training outperform others",
        "final training loss, fixed and inverse − adaptive, T = {n}, i.i.d. and {skew} labels",
        "loss",
        "The loss tells what the accuracy tells.",
    ),
    Claim(
        "fig8-inverse-worse",
        "fig8",
        "V-B.4",
        "The decrease in model performance with the inverse scheme confirms that allocating less "
        "local training rounds at the beginning of the training process is an effective approach "
        "to enhance test accuracy.",
        "final accuracy, fixed − inverse, T = {n}, i.i.d. and {skew} labels",
        "points",
        "Only where the schedules end is compared; along the way their order may be another.",
    ),
    Claim(
        "fig8-excessive",
        "fig8",
        "V-B.4",
        "allocating excessive resources to local training in each iteration, with the same "
        "resource budgets, leads to poorer performance",
        "final accuracy, {first} − {second}, i.i.d. and {skew} labels",
        "points",
        "The budgets are not the same: 100 aggregations cost twice the radio energy of 50.",
    ),
    Claim(
        "fig8-adaptive-300",
        "fig8",
        "V-B.4",
        "allocating excessive resources to local training in each iteration, with the same "
        "resource budgets, leads to poorer performance",
        "final accuracy, adaptive over {n} iterations − {first} and − {second}, i.i.d. and {skew} "
        "labels",
        "points",
        "The paper does not state the adaptive scheme's own T; here it is that of the first fixed "
        "scheme.",
    ),
    Claim(
        "noniid-damage",
        "fig8",
        "III-B",
        "both the higher the non-i.i.d. level and more participating devices lead to the greater "
        "the performance damage",
        "final accuracy, i.i.d. − {skew} labels, {fixed}, T = {n} (the first half of the sentence)",
        "points",
        "Equally many samples on every device: nothing but the labels differs.",
    ),
    Claim(
        "noniid-damage-devices",
        "fig5",
        "III-B",
        "both the higher the non-i.i.d. level and more participating devices lead to the greater "
        "the performance damage",
        "final accuracy, N = {few} − N = {many}, {skew} labels, one data set shared out among them "
        "(the second half of the sentence)",
        "points",
        "The corrected Theorem 2 has no N in it.",
    ),
    Claim(
        "fig9-outperforms",
        "fig9",
        "V-B.4",
        "the proposed scheme consistently outperforms the baselines",
        "final accuracy, adaptive − each baseline, every data set and number of rounds, equal "
        "iterations",
        "points",
        "Equal iterations are not equal energy, and exact averaging is compared with gossip: what "
        "the allocation of rounds adds is confounded with consensus error.",
    ),
    Claim(
        "fig9-outperforms-energy",
        "fig9",
        "V-B.4",
        "the proposed scheme consistently outperforms the baselines",
        "final accuracy, adaptive − each baseline, every data set and number of rounds, equal "
        "batteries: each method runs until one of them is empty",
        "points",
        "The paper compares at equal iterations. Batteries are sized, device by device, to what "
        "the adaptive plan needs, which favours it; a method with cheap messages still gets more "
        "iterations out of them.",
    ),
    Claim(
        "fig9-gap-narrows",
        "fig9",
        "V-B.4",
        "increasing the total rounds of local training can narrow the performance gap",
        "gap between adaptive and the mean of the baselines, {few} − {many} rounds, each data set",
        "points",
        "The gap is that to the mean of three baselines, one of which has none to begin with.",
    ),
    Claim(
        "fig9-complex-tasks",
        "fig9",
        "V-B.4",
        "the advantages of the proposed scheme are more pronounced in complex tasks compared to "
        "simpler datasets",
        "gap between adaptive and the mean of the baselines, {harder} − {simpler}, each number of "
        "rounds",
        "points",
        "On the simpler task every method is near the ceiling.",
    ),
    Claim(
        "more-rounds-help",
        "fig9",
        "III-B",
        "increasing the total number of rounds of local training can enhance the model performance",
        "final accuracy of adaptive, {many} − {few} rounds, each data set, equal iterations",
        "points",
        "More rounds are also more computation and more joules.",
    ),
)

SENTENCES = (*_THEORY, *_ENERGY, *_LEARNING)


def claim(name: str, **run: Any) -> Claim:
    """The test of that id.

    Args:
        name: its id.
        run: what was run, for the fields of its quantity.

    >>> claim("fig8-inverse-worse", n=16, skew="Dirichlet(0.1)").quantity
    'final accuracy, fixed − inverse, T = 16, i.i.d. and Dirichlet(0.1) labels'
    """
    one = next(one for one in SENTENCES if one.id == name)
    return replace(one, quantity=one.quantity.format(**run))
