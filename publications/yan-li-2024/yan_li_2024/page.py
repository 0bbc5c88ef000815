"""The page of a reproduction: what the paper says, what was found, why the two differ."""

from __future__ import annotations

__all__ = ["REPAIRS", "write_page"]

from collections.abc import Mapping, Sequence
from typing import Any

from joulemesh.views.markdown import Markdown, code, escape, table
from yan_li_2024.claims import sentences
from yan_li_2024.sentences import SENTENCES
from yan_li_2024.verdicts import MARKS, ClaimRow, effect_words, tally_words

# What each part of the paper shows, in a line.
_PARTS = {
    "table1": "Table I and Theorem 4: how to spread rounds over iterations",
    "fig4": "Fig. 4: accuracy against iterations under the aggregation schemes",
    "fig5": "Fig. 5: the number of devices, non-i.i.d. data",
    "fig6": "Fig. 6: iterations to accuracy 0.5",
    "fig7": "Fig. 7: energy of the aggregation schemes",
    "fig8": "Fig. 8: adaptive, fixed and inverse rounds",
    "fig9": "Fig. 9: the proposed scheme against GL, Balanced DFL and PENS",
}

_VERSIONS = ("joulemesh", "python", "jax", "numpy", "scipy")

REPAIRS = (
    ("sgd", "the same sample for all τ steps", "a fresh batch in every step"),
    ("ticp, eicp", "a round is an epoch here, a step in sgd", "what is processed is priced"),
    ("ecp", "both ends pay for each use of a link", "the transmitter pays; both ends on request"),
    ("tcp", "two steps for a tree of any depth", "the critical path of the messages"),
    ("tau", "a device's own link limits its rounds", "the whole exchange's latency does"),
    ("gap1, P3", "exponent τ_{i,j}", "τ_{i,t}, as in (P42) and Table I"),
    ("p14", "the factor 1 − a^τ is dropped", "kept: the bound does not depend on the allocation"),
    ("p18", "Jensen's inequality reversed", "‖∇F‖² ≤ G directly"),
    ("p114, φ(N)", "k(N−1)(2N−1)/N", "‖P − I‖² = 1 for every N"),
    ("gap2, gap3", "σ is lost", "Theorem 2 restated by divergence and rounds, without N"),
    ("rate, Remark 3", "η = 1/(Mt⁴)", "constant η: linear to a noise ball"),
    ("P41", "its minimiser is no link at all", "a connected subgraph is required: the MST"),
    ("s1", "K = O(ln 1/ε)", "K = ln(1/ε)/ln(1/λ₂), by the spectral gap"),
    ("optt", "cases overlap or are empty, 1 stands for τ₀", "water-filling with the same weights"),
    ("optt, floors", "zero rounds, part of the total unused", "largest remainders, at least 1"),
    ("Algorithm 3", "its loop over T never ends", "closed form for the largest n"),
    ("com", "needs N ≥ 3", "holds for the chunked ring as well"),
)
"""Equation, what is printed, what is used here."""


def write_page(
    rows: Sequence[ClaimRow],
    *,
    pictures: Mapping[str, Sequence[str]],
    notes: Mapping[str, Sequence[str]],
    failures: Mapping[str, str],
    timings: Mapping[str, Any],
    discussed: bool = False,
) -> str:
    """Write the page from the results; no result is taken for granted.

    Args:
        rows: of ``claims.csv``.
        pictures: names of the PNG files of each part.
        notes: of each part.
        failures: why a part could not be redone.
        timings: what ``timings.json`` holds.
        discussed: is there a ``discussion.md`` to point to?

    Returns:
        Markdown.

    >>> page = write_page([], pictures={}, notes={}, failures={"fig4": "no data"}, timings={})
    >>> page.splitlines()[0]
    '# Reproduction'
    """
    parts = [_head(rows, timings, discussed), _verdicts(rows)]
    verdicts = {tests[0]["sentence"]: verdict for verdict, tests in sentences(rows)}
    for name, title in _PARTS.items():
        mine = [row for row in rows if row["figure"] == name]
        if name in failures:
            parts.append(f"## {escape(title)}\n\nNot redone: {escape(failures[name])}\n")
        elif mine:
            setup = timings.get("setups", {}).get(name, "")
            shown = _figures(name, title, pictures.get(name, ()), setup, notes.get(name, ()))
            parts.append(shown + _claims(mine, verdicts))
    parts += [_repairs(), _time(timings)]
    return "\n".join(parts)


def _head(rows: Sequence[ClaimRow], timings: Mapping[str, Any], discussed: bool) -> str:
    lines = [
        "# Reproduction\n",
        "Yan, Li: “Adaptive Decentralized Federated Learning in Energy and Latency Constrained "
        "Wireless Networks”, arXiv:2403.20075, redone figure by figure. No public implementation "
        "of the paper is known; all of this is computed by the code in this repository.\n",
    ]
    if timings.get("size") == "quick":
        lines.append(
            "This is the quick form: digits in place of the paper's data sets, few devices and "
            "seeds. It shows that everything runs; what it says of learning means nothing.\n"
        )
    of = f"{len(sentences(rows))} sentences that can be tested, by {len(rows)} tests,"
    lines.append(
        f"Of {of} **{tally_words(rows)}**."
        + (" What that means, in words: [discussion](discussion.md).\n" if discussed else "\n")
    )
    lines += _origin(timings)
    lines += [
        "## How verdicts are reached\n",
        "A test about learning *holds* if the 95 % t interval of its quantity, paired over seeds, "
        "lies above 0 in every case that the sentence speaks of; it *does not hold* if in some "
        "case the interval lies below 0 at a confidence raised for the number of cases "
        "(Bonferroni); otherwise, or with fewer than 5 seeds, it is *undecided*. Energies and "
        "formulas are exact: what the quantity must be is given beside it, and one case against "
        "the sentence refutes it. Where the paper leaves a constant open that decides, the test "
        "*depends*, and the effect is the value that the constant must exceed. The effect is that "
        "of the case where the sentence does worst, which makes it look worse than it is on "
        "average.\n",
        "A sentence with several tests has the verdict that they agree on; where they differ it "
        "*depends*, and the tests say on what.\n",
    ]
    return "\n".join(lines)


def _origin(timings: Mapping[str, Any]) -> list[str]:
    """Command, machine, versions and time, as a table."""
    machine: Mapping[str, str] = timings.get("machine", {})
    versions = [f"{name} {machine[name]}" for name in _VERSIONS if name in machine]
    wall_s = sum(row["wall_s"] for row in timings.get("figures", {}).values())
    said = {
        "command": code(timings.get("command", "joulemesh reproduce")),
        "machine": ", ".join(machine[key] for key in ("accelerator", "system") if key in machine),
        "versions": ", ".join(versions),
        "seeds": f"{len(timings.get('seeds', ()))}",
        "time": Markdown(f"{wall_s:,.0f} s ([where it went](#time))"),
    }
    return [table(("", ""), [(name, words) for name, words in said.items() if words]), ""]


def _verdicts(rows: Sequence[ClaimRow]) -> str:
    """Every sentence in a line; the quantities' details are with the figures."""
    order = list(_PARTS)
    header = ("part", "the paper says", "verdict", "tests: effect [95 % interval]")
    ordered = sorted(rows, key=lambda row: order.index(row["figure"]))
    cells = (
        (
            ", ".join(dict.fromkeys(row["figure"] for row in tests)),
            f"“{tests[0]['sentence']}” ({tests[0]['section']})",
            MARKS[verdict],
            Markdown("<br>".join(_line(row) for row in tests)),
        )
        for verdict, tests in sentences(ordered)
    )
    return (
        "## All sentences\n\n"
        "With all details: [claims.md](claims.md), [claims.csv](claims.csv).\n\n"
        f"{table(header, cells)}\n"
    )


def _line(row: ClaimRow) -> str:
    """One test in a line."""
    said = f"{_sentence(row['quantity'])}: {effect_words(row)}"
    return escape(f"{MARKS[row['verdict']]}. {said}")


def _figures(
    name: str, title: str, pictures: Sequence[str], setup: str, notes: Sequence[str]
) -> str:
    lines = [f"## {escape(title)}\n"]
    lines += [f"![{escape(title)}]({file})\n" for file in pictures]
    if setup:
        lines.append(f"**Run here:** {escape(setup)}\n")
    lines += [f"- {escape(_sentence(note))}." for note in notes]
    lines += [f"- Numbers: [{name}.csv]({name}.csv).\n"]
    return "\n".join(lines) + "\n"


def _claims(rows: Sequence[ClaimRow], verdicts: Mapping[str, str]) -> str:
    why = {one.id: one.why for one in SENTENCES}
    lines = []
    for _, tests in sentences(rows):
        said, section = escape(tests[0]["sentence"]), escape(tests[0]["section"])
        verdict = verdicts[tests[0]["sentence"]]
        lines.append(f"**The paper says** ({section}): “{said}”\n")
        lines.append(f"**Verdict:** {escape(MARKS[verdict])}\n")
        for row in tests:
            quantity = escape(_sentence(row["quantity"]))
            detail = escape(f"{row['basis']}; {row['detail']}")
            lines.append(
                f"- {escape(MARKS[row['verdict']])}. {quantity}: "
                f"**{escape(effect_words(row))}** ({detail})."
                + (f" {escape(why[row['id']])}" if why.get(row["id"]) else "")
            )
        lines.append("")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _repairs() -> str:
    return (
        "## Equations that had to be repaired\n\n"
        "By their labels in the paper's source. The printed forms are kept by name, so that the "
        "two can be compared.\n\n"
        f"{table(('equation', 'printed', 'used here'), REPAIRS)}\n"
    )


def _time(timings: Mapping[str, Any]) -> str:
    figures: Mapping[str, Mapping[str, Any]] = timings.get("figures", {})
    columns = ("wall_s", "compile_s", "train_s", "evaluate_s", "device_steps", "compilations")
    header = ["part", "wall [s]", "compiling [s]", "training [s]", "evaluating [s]"]
    header += ["device-steps", "compilations"]
    total = {column: sum(row[column] for row in figures.values()) for column in columns}
    cells = (
        (name, *(_figure(row[column]) for column in columns))
        for name, row in {**figures, "all": total}.items()
    )
    lines = ["## Time\n", table(header, cells)]
    lines.append(
        "\nThe rest of the wall time is reading data, sharing it out, planning, drawing and "
        "writing. Training and evaluating share the engine's calls; least squares over the calls "
        "tells them apart. What was found in the cache took no time here."
    )
    if total["wall_s"]:
        share = 100 * total["evaluate_s"] / total["wall_s"]
        lines.append(f"Evaluating takes {share:.1f} % of the wall time.")
    merged = [name for name, row in figures.items() if row["train_s"] and not row["evaluate_s"]]
    if merged:
        lines.append(
            f"In {', '.join(merged)} every call trains and evaluates in the same proportion: what "
            "evaluating takes there is counted as training."
        )
    return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
