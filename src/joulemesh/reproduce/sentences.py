"""The paper's sentences that can be tested, quoted, and what decides each of them.

Sections III and IV: statements about formulas and link energies, decided exactly; Section V:
results of simulations, decided over seeds. LaTeX is written out; nothing else is changed.
"""

from __future__ import annotations

__all__ = ["SENTENCES", "claim"]

from joulemesh.reproduce.claims import Claim

_THEORY = (
    Claim(
        "table1-minimum",
        "table1",
        "IV-C, Table I",
        "if the DFL system want to achieve a better performance, it prefer to allocate less rounds "
        "of local training at the beginning",
        "least (P42) of the other five allocations − (P42) of (1, 1, 3), for a from 0.05 to 0.99",
        "",
        "True of the objective (P42). The objective itself rests on one loose step of eq. p14, "
        "which drops a factor 1 − a^τ: kept, the bound does not depend on the allocation at "
        "all.",
    ),
    Claim(
        "p42-nonconvex",
        "table1",
        "IV-C",
        "the coupled τ_{i,t} in (P42a) leads to the non-convexity of (P42)",
        "− least second difference of (P42) along random lines (a convex function has none below "
        "0)",
        "",
        "(P42) is a sum of exponentials of linear functions under linear constraints, hence "
        "convex; only integrality is not, and it is benign.",
    ),
    Claim(
        "theorem4-optimal",
        "table1",
        "IV-C, Theorem 4",
        "The optimal solutions of (P5) can be obtain by the following theorem, which are the "
        "optimized solutions of (P42)",
        "− excess of Theorem 4's (P42), corrected, over the exact minimum",
        "%",
        "The exact integer minimum is known: one round each, the surplus filled in from the "
        "last iteration backwards up to the cap, which makes every suffix sum as large as it "
        "can be. Theorem 4 spreads rounds more evenly.",
    ),
    Claim(
        "theorem4-cases",
        "table1",
        "IV-C, Theorem 4",
        "The optimal solutions of (P5) are given by (optt)",
        "values of t_0 with a non-empty interval − values of t_0 that the middle cases need",
        "cases",
        "As printed the weights increase with t, so every interval of the middle cases runs "
        "backwards, and the first and last cases overlap.",
    ),
    Claim(
        "theorem4-increasing",
        "table1",
        "IV-C",
        "the expression of τ*_{i,t} is an increasing function of t when δ_{i,E} is limited",
        "least increase of the corrected τ_t from one iteration to the next",
        "rounds",
        "Holds for the weights of eq. optt, with ties where rounds are whole.",
    ),
    Claim(
        "infinite-budget",
        "table1",
        "IV-C",
        "if the recourse budgets are infinity, we find that τ*_{i,t} = 1",
        "(P42) with the cap's rounds in every iteration − (P42) with one round in each",
        "",
        "(P42) decreases with every additional round: without limits on the total its minimum "
        "is the cap in every iteration, not 1.",
    ),
    Claim(
        "bound-vanishes",
        "table1",
        "III-C, Remark 3",
        "Thus, the ε in Corollary 1 can be made arbitrarily small.",
        "10⁻³ − A_1/gap after 10⁶ iterations with η = 1/(Mt⁴), m/M = 0.1, τ = 5",
        "of the gap",
        "With η = 1/(Mt⁴) the rates sum to a constant, so training stops short: A_1 tends to a "
        "positive share of the initial gap. A constant η is needed.",
    ),
    Claim(
        "rate-grows",
        "table1",
        "III-C, Corollary 1",
        "in the i.i.d. case, the DFL converges in a linear rate",
        "1 − growth from t = 10 to t = 1000 of 1/(−ln(1−mη)(t−1)), the last term of eq. rate, with "
        "η = 1/(Mt⁴)",
        "times",
        "The term grows like t³ under the stated η, so T = O(1/ε) does not follow; O(1/ε) would "
        "not be a linear rate either.",
    ),
    Claim(
        "devices-amplify",
        "table1",
        "III-B",
        "in the non-i.i.d. case, a larger N will amplify the impact of δ_m on the performance",
        "growth of the norm ‖P − I‖², for which φ(N) stands, from N = 2 to N = 50",
        "",
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
        "(paper's ring − tree)/tree, least over topologies, N and placements",
        "%",
        "Removing the dearest link of a ring leaves a spanning tree, and the paper's ring passes "
        "whole vectors N−1 times.",
    ),
    Claim(
        "corollary2-chunked",
        "fig7",
        "IV-B, Corollary 2",
        "The aggregation scheme based on MST consumes less energy than the scheme based on "
        "Ring-AllReduce",
        "(Ring-AllReduce in N chunks − tree)/tree, least over topologies, N and placements",
        "%",
        "Ring-AllReduce proper is N/2 times cheaper than the paper's ring, and the corollary "
        "survives: a ring without its dearest link is a spanning tree, and costs at most the share "
        "(N−1)/N of it that the chunks cost.",
    ),
    Claim(
        "tree-slower",
        "fig7",
        "IV-B",
        "the aggregation scheme in Case 1 is a sequential aggregation approach, thereby "
        "facilitating a potentially slower consensus time compared with the aggregation scheme "
        "based on Ring-AllReduce or randomized gossip algorithm",
        "(tree's critical path − the rival's)/the rival's; rivals: the paper's ring, gossip to ε",
        "%",
        "Eq. tcp gives the tree two steps and hides its depth; here every scheme is timed by its "
        "critical path. The paper's ring passes whole vectors N−1 times.",
    ),
    Claim(
        "tree-slower-chunked",
        "fig7",
        "IV-B",
        "the aggregation scheme in Case 1 is a sequential aggregation approach, thereby "
        "facilitating a potentially slower consensus time compared with the aggregation scheme "
        "based on Ring-AllReduce or randomized gossip algorithm",
        "the same against Ring-AllReduce in N chunks",
        "%",
        "Ring-AllReduce proper is N/2 times faster than the paper's ring, and the tree has "
        "depth: the trade-off that the sentence hints at.",
    ),
    Claim(
        "gossip-dearer",
        "fig7",
        "V-B.3",
        "the proposed schemes based on the MST and Ring-AllReduce consistently incur lower energy "
        "costs than the randomized gossip algorithm",
        "(gossip − scheme)/scheme, least over schemes, ε, N, topologies; K by the spectral gap",
        "%",
        "K that reaches ε needs the spectral gap of the graph; then gossip on sparse graphs is "
        "dear by construction.",
    ),
    Claim(
        "gossip-dearer-printed",
        "fig7",
        "V-B.3",
        "the proposed schemes based on the MST and Ring-AllReduce consistently incur lower energy "
        "costs than the randomized gossip algorithm",
        "the same by the paper's own equations: both ends pay, K = ⌈ln 1/ε⌉ over all links",
        "%",
        "By eq. s1 gossip uses every link ⌈ln 1/ε⌉ = 3 times, the ring N−1 times: the paper's "
        "own cost model does not give its Fig. 7.",
    ),
    Claim(
        "smaller-epsilon",
        "fig7",
        "V-B.3",
        "when the randomized gossip algorithm requires a less consensus error (e.g., smaller ε), "
        "it needs to finish more rounds of communication in one iteration, which leads to a higher "
        "energy costs",
        "(ε = 0.05 − ε = 0.06)/(ε = 0.06), least over N and topologies; K by the spectral gap",
        "%",
        "ln(1/0.05)/ln(1/0.06) = 1.065: about six per cent.",
    ),
    Claim(
        "smaller-epsilon-printed",
        "fig7",
        "V-B.3",
        "when the randomized gossip algorithm requires a less consensus error (e.g., smaller ε), "
        "it needs to finish more rounds of communication in one iteration, which leads to a higher "
        "energy costs",
        "the same by the paper's own equations: K = ⌈ln 1/ε⌉",
        "%",
        "⌈ln 1/0.05⌉ = ⌈ln 1/0.06⌉ = 3: by eq. s1 the two curves coincide.",
    ),
    Claim(
        "energy-grows",
        "fig7",
        "V-B.3",
        "the energy costs of all schemes increase with the number of devices",
        "increase from each N to the next, least over schemes, topologies and placements",
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
        "accuracy",
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
        "accuracy",
        "Accuracy is the mean of the devices' own models, since gossip leaves them apart; that "
        "of their mean hardly differs between schemes. With i.i.d. data and enough ticks the "
        "difference drowns in noise.",
    ),
    Claim(
        "fig4-more-rounds",
        "fig4",
        "V-B.1",
        "the randomized gossip algorithm that considers larger K_t in the aggregation achieves "
        "higher accuracy",
        "final accuracy, larger K − next smaller K, every model and topology",
        "accuracy",
        "Once the models agree, more exchanges have nothing to add.",
    ),
    Claim(
        "fig5-fewer-global",
        "fig5",
        "V-B.1",
        "Compared with the DFL with more devices, DFL can achieve a better performance when it has "
        "fewer devices",
        "final accuracy, fewest − most devices, the same global data set shared out",
        "accuracy",
        "With a fixed global set more devices also means fewer samples on each: N is confounded "
        "with D_i.",
    ),
    Claim(
        "fig5-fewer-local",
        "fig5",
        "V-B.1",
        "Compared with the DFL with more devices, DFL can achieve a better performance when it has "
        "fewer devices",
        "final accuracy, fewest − most devices, the same number of samples on each device",
        "accuracy",
        "With fixed data per device more devices bring more data in all. The corrected Theorem 2 "
        "has no N in it.",
    ),
    Claim(
        "fig5-gap-stays",
        "fig5",
        "V-B.1",
        "this interval will not decrease as T further increases after T is large enough",
        "gap between fewest and most devices at the end − at half of the iterations (at most 0.005 "
        "of decrease counts as none)",
        "accuracy",
        "Only a gap can stay: where there is none the sentence says little.",
    ),
    Claim(
        "fig6-fewer-faster",
        "fig6",
        "V-B.2",
        "fewer devices (e.g., N = 15) lead to faster convergence compared to configurations with "
        "more devices (e.g., N = 30), consistent with the insights from Corollary 1",
        "iterations to the target accuracy, N = 30 − N = 15, exact averaging",
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
        "the same with one Metropolis round in place of exact averaging, ring and quasi-ring",
        "iterations",
        "Where averaging is not exact a longer ring mixes more slowly, so topology and N matter.",
    ),
    Claim(
        "fig8-adaptive-best",
        "fig8",
        "V-B.4",
        "the proposed adaptive rounds of local training outperform others",
        "final accuracy, adaptive − fixed and − inverse, T = 400, i.i.d.",
        "accuracy",
        "In the corrected bound the order of the rounds hardly counts; on quadratics late "
        "rounds are the worst. Whatever a schedule does last counts most for its final point: "
        "compare the whole curves.",
    ),
    Claim(
        "fig8-adaptive-best-skewed",
        "fig8",
        "V-B.4",
        "the proposed adaptive rounds of local training outperform others",
        "the same with label skew, Dirichlet(0.1)",
        "accuracy",
        "Many rounds in one iteration on skewed labels can pull the devices apart; the adaptive "
        "schedule ends with such iterations, so that no averaging of short steps follows.",
    ),
    Claim(
        "fig8-adaptive-loss",
        "fig8",
        "V-B.4",
        "the proposed adaptive rounds of local training outperform others",
        "final training loss, fixed and inverse − adaptive, T = 400, i.i.d. and skewed",
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
        "final accuracy, fixed − inverse, T = 400, i.i.d. and skewed",
        "accuracy",
        "Only where the schedules end is compared; along the way their order may be another.",
    ),
    Claim(
        "fig8-excessive",
        "fig8",
        "V-B.4",
        "allocating excessive resources to local training in each iteration, with the same "
        "resource budgets, leads to poorer performance",
        "final accuracy, 3 rounds × 100 iterations − 6 rounds × 50, i.i.d. and skewed",
        "accuracy",
        "The budgets are not the same: 100 aggregations cost twice the radio energy of 50.",
    ),
    Claim(
        "fig8-adaptive-300",
        "fig8",
        "V-B.4",
        "This comparison highlights that allocating excessive resources to local training in each "
        "iteration, with the same resource budgets, leads to poorer performance",
        "final accuracy, adaptive − fixed 3 and − fixed 6, τ_total = 300, i.i.d. and skewed",
        "accuracy",
        "The adaptive scheme's own T is not stated; here it is 100.",
    ),
    Claim(
        "noniid-damage",
        "fig8",
        "III-B",
        "both the higher the non-i.i.d. level and more participating devices lead to the greater "
        "the performance damage",
        "final accuracy, i.i.d. − Dirichlet(0.1), fixed rounds, T = 400 (the first half of the "
        "sentence; Fig. 5 decides the second)",
        "accuracy",
        "Equally many samples on every device: nothing but the labels differs.",
    ),
    Claim(
        "fig9-outperforms",
        "fig9",
        "V-B.4",
        "the proposed scheme consistently outperforms the baselines",
        "final accuracy, adaptive − each baseline, every data set and number of rounds, equal "
        "iterations",
        "accuracy",
        "Equal iterations are not equal energy, and exact averaging is compared with gossip: "
        "what the allocation of rounds adds is confounded with consensus error.",
    ),
    Claim(
        "fig9-outperforms-energy",
        "fig9",
        "V-B.4",
        "the proposed scheme consistently outperforms the baselines",
        "the same with equal batteries: each method runs until one of them is empty",
        "accuracy",
        "Batteries are sized, device by device, to what the adaptive plan needs, which favours it; "
        "a method with cheap messages still gets more iterations out of them.",
    ),
    Claim(
        "fig9-gap-narrows",
        "fig9",
        "V-B.4",
        "increasing the total rounds of local training can narrow the performance gap",
        "gap between adaptive and the mean of the baselines, fewest − most rounds, each data set",
        "accuracy",
        "The gap is that to the mean of three baselines, one of which has none to begin with.",
    ),
    Claim(
        "fig9-complex-tasks",
        "fig9",
        "V-B.4",
        "the advantages of the proposed scheme are more pronounced in complex tasks compared to "
        "simpler datasets",
        "gap between adaptive and the mean of the baselines, CIFAR-10 − MNIST, each number of "
        "rounds",
        "accuracy",
        "On MNIST every method is near the ceiling.",
    ),
    Claim(
        "more-rounds-help",
        "fig9",
        "III-B",
        "increasing the total number of rounds of local training can enhance the model performance",
        "final accuracy of adaptive, most − fewest rounds, each data set, equal iterations",
        "accuracy",
        "More rounds are also more computation and more joules.",
    ),
)

SENTENCES = (*_THEORY, *_ENERGY, *_LEARNING)


def claim(name: str) -> Claim:
    """The claim of that id.

    >>> claim("corollary2").figure
    'fig7'
    """
    return next(one for one in SENTENCES if one.id == name)
