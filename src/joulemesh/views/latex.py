"""Text and tables for LaTeX, whatever characters names hold."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from joulemesh.base.errors import ScenarioError, printable
from joulemesh.base.registry import Citation
from joulemesh.base.units import prefixed
from joulemesh.data.dataset import dataset_words
from joulemesh.scenario.varied import Varied
from joulemesh.study.comparison import Comparison, Judgement, judged, merits
from joulemesh.study.runs import default_target
from joulemesh.study.sweep_result import Sweep
from joulemesh.views.comparison import measures, method_text
from joulemesh.views.sweep import scale_of, words_of
from joulemesh.views.table import NONE, Cell, Column, Measure, Table
from joulemesh.views.words import device_words, open_text

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\^{}",
    "~": r"\textasciitilde{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': "{''}",
    "`": r"\`{}",
    "–": "--",
    "—": "---",
    "−": r"\ensuremath{-}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "≤": r"\ensuremath{\le}",
    "≥": r"\ensuremath{\ge}",
    "≈": r"\ensuremath{\approx}",
    "→": r"\ensuremath{\to}",
    "√": r"\ensuremath{\surd}",
    "∞": r"\ensuremath{\infty}",
    "†": r"\ensuremath{\dagger}",
    "‡": r"\ensuremath{\ddagger}",
    "°": r"\ensuremath{\sp{\circ}}",
    "²": r"\ensuremath{\sp{2}}",
    "³": r"\ensuremath{\sp{3}}",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "\u00a0": "~",
    "\u2009": r"\,",
    "\u202f": r"\,",
    "µ": r"\ensuremath{\mu}",
    "ε": r"\ensuremath{\varepsilon}",
    **{
        unicodedata.lookup(f"GREEK {kind} LETTER {name.upper()}"): rf"\ensuremath{{\{name}}}"
        for kind, names in (
            ("SMALL", "alpha beta gamma delta zeta eta theta kappa mu rho sigma tau phi omega"),
            ("CAPITAL", "Delta Sigma Omega"),
        )
        for name in names.split()
    },
    "λ": r"\ensuremath{\lambda}",
    "ß": r"{\ss}",
    "æ": r"{\ae}",
    "Æ": r"{\AE}",
    "œ": r"{\oe}",
    "Œ": r"{\OE}",
    "ø": r"{\o}",
    "Ø": r"{\O}",
    "ł": r"{\l}",
    "Ł": r"{\L}",
    "ı": r"{\i}",
}
_ACCENTS = {
    "\u0300": r"\`",
    "\u0301": r"\'",
    "\u0302": r"\^",
    "\u0303": r"\~",
    "\u0304": r"\=",
    "\u0306": r"\u",
    "\u0307": r"\.",
    "\u0308": r"\"",
    "\u030a": r"\r",
    "\u030b": r"\H",
    "\u030c": r"\v",
    "\u0327": r"\c",
}


class Tex(str):
    """A piece of LaTeX, which is taken as it is; all other text is escaped."""

    __slots__ = ()


def escape(text: str) -> str:
    """Make any text safe to stand in a LaTeX document, with every engine and font encoding."""
    if isinstance(text, Tex):
        return str(text)
    return "".join(_letter(one) for one in unicodedata.normalize("NFC", printable(text)))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter.isascii():
        return letter
    parts = unicodedata.normalize("NFD", letter)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        base = rf"\{parts[0]}" if parts[0] in "ij" else parts[0]
        return f"{{{_ACCENTS[parts[1]]}{{{base}}}}}"
    code = f"{ord(letter):04X}"
    return rf'{{\ifdefined\pdftexversion[U+{code}]\else\char"{code} \fi}}'


def booktabs(
    table: Table,
    *,
    caption: str,
    label: str,
    notes: Sequence[str] = (),
    wide: bool = False,
    compact: bool = False,
) -> str:
    """A table in the style of the package ``booktabs``, floating, with its caption above."""
    wrong = next((row for row in table.rows if len(row) > len(table.columns)), None)
    if wrong is not None:
        raise ScenarioError(
            f"a row of {len(wrong)} cells does not fit a table of {len(table.columns)} columns"
        )
    if not label or set(label) & set("\\{}#%~^$&,= \n\t"):
        raise ScenarioError(
            f"label {label!r} is unusable: use letters, digits and : . - _ as in tab:methods"
        )
    kind = "table*" if wide else "table"
    align = "".join("r" if column.figures else "l" for column in table.columns)
    lines = [
        r"% Needs \usepackage{booktabs}.",
        rf"\begin{{{kind}}}[t]",
        r"  \centering",
        rf"  \caption{{{escape(caption)}}}",
        rf"  \label{{{label}}}",
        *([r"  \footnotesize\setlength{\tabcolsep}{4pt}"] if compact else []),
        rf"  \begin{{tabular}}{{@{{}}{align}@{{}}}}",
        r"    \toprule",
        f"    {_row(table.names)}",
        r"    \midrule",
        *(f"    {_row(row)}" for row in table.whole),
        r"    \bottomrule",
        r"  \end{tabular}",
        *_notes_latex(notes),
        rf"\end{{{kind}}}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[Cell]) -> str:
    """One line; a cell that begins with a bracket must not become the option of the line's end."""
    row = " & ".join("--" if cell == NONE else escape(cell) for cell in map(_plain_text, cells))
    return (f"{{}}{row}" if row.startswith(("[", "*")) else row) + r" \\"


def _plain_text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.plain


def _notes_latex(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    said = " ".join(escape(note) for note in notes)
    return [r"  \par\smallskip", rf"  \parbox{{\linewidth}}{{\footnotesize {said}}}"]


_SMALL = {"a", "an", "the", "on", "of", "for", "in", "to", "with", "and", "can"}
_VENUE = {
    "article": "journal",
    "inproceedings": "booktitle",
    "techreport": "institution",
    "misc": "howpublished",
}


class Used(NamedTuple):
    """Something that a study rests on."""

    what: str  # in words, such as ``"method d-psgd"``
    citations: tuple[Citation, ...]  # where it was published
    note: str = "no publication is recorded"  # what to know where there is no publication


def bibtex(used: Sequence[Used], *, version: str) -> str:
    """The entries of everything that was used, each publication once."""
    wanted = _wanted(used)
    missing = [f"% {_comment(f'{one.what}: {one.note}')}\n" for one in used if not one.citations]
    keys = _keys(list(wanted))
    entries = [
        f"% {_comment('; '.join(what))}\n{_entry(keys[cited], cited, version)}"
        for cited, what in wanted.items()
    ]
    return "\n".join(filter(None, ["".join(missing), *entries]))


def _wanted(used: Sequence[Used]) -> dict[Citation, list[str]]:
    wanted: dict[Citation, list[str]] = {}
    for one in used:
        for cited in one.citations:
            named = wanted.setdefault(cited, [])
            named += [] if one.what in named else [one.what]
    return wanted


def keys_of(used: Sequence[Used]) -> dict[str, tuple[str, ...]]:
    """The keys by which a text cites each thing that was used."""
    keys = _keys(list(_wanted(used)))
    return {one.what: tuple(keys[cited] for cited in one.citations) for one in used}


def _comment(text: str) -> str:
    """BibTeX takes an at sign for an entry wherever it stands."""
    return " ".join(printable(text).replace("@", "(at)").split())


def entry_key(cited: Citation) -> str:
    """The key of an entry: first author, year, first word of the title, in plain letters."""
    author = (cited.names or cited.authors).strip("{}").split(",")[0].split(" and ")[0]
    family = author.removeprefix("The ").split(" ")[0] if cited.names.startswith("{") else author
    words = [word for word in re.split(r"\W+", cited.title) if word and word.lower() not in _SMALL]
    first = _plain(words[0]) if words else ""
    year = "" if cited.year is None else str(cited.year)
    if not family:
        return f"{first or 'untitled'}{year}"
    return f"{_plain(family)}{year}{'' if cited.year is None else first}" or "untitled"


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]", "", letters.lower())


def _keys(citations: Sequence[Citation]) -> dict[Citation, str]:
    keys: dict[Citation, str] = {}
    for cited in citations:
        key, count = entry_key(cited), 1
        while key in keys.values():
            count += 1
            key = f"{entry_key(cited)}-{count}"
        keys[cited] = key
    return keys


def _entry(key: str, cited: Citation, version: str) -> str:
    kind, fields = _kind(cited), dict(_fields(cited))
    if cited.year is None:
        fields["version"] = version
        fields["note"] = f"Version {version}"
    lines = [f"  {name} = {{{_value_bibtex(text)}}}," for name, text in fields.items() if text]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"]) + "\n"


def _value_bibtex(text: str) -> str:
    """Text for BibTeX, which counts braces whether they are escaped or not."""
    return escape(text).replace(r"\{", r"\textbraceleft{}").replace(r"\}", r"\textbraceright{}")


def _kind(cited: Citation) -> str:
    if cited.kind:
        return cited.kind
    return "article" if "pages" in cited.pages else "inproceedings" if cited.venue else "misc"


def _fields(cited: Citation) -> Iterator[tuple[str, str]]:
    whole = cited.names or " and ".join(name.strip() for name in cited.authors.split(","))
    corporate = whole.startswith("{")
    yield "author", Tex(f"{{{_value_bibtex(whole.strip('{}'))}}}") if corporate else whole
    yield "title", Tex(f"{{{_value_bibtex(cited.title)}}}")
    parts = cited.pages
    preprint = f"arXiv:{cited.arxiv}" if cited.arxiv else ""  # for styles that know no eprint
    yield _VENUE.get(_kind(cited), "howpublished"), parts.get("venue", preprint)
    yield "volume", parts.get("volume", "")
    yield "number", parts.get("number", "")
    yield "pages", Tex(re.sub("[-–]", "--", parts.get("pages", "")))
    yield "year", "" if cited.year is None else str(cited.year)
    yield "doi", Tex(_address(cited.doi or ""))
    yield "eprint", cited.arxiv or ""
    yield "archiveprefix", "arXiv" if cited.arxiv else ""
    yield "url", Tex(_address(cited.address or ""))


def _address(url: str) -> str:
    r"""An address for ``\url``, which takes it as it is; braces and the like are encoded."""
    return re.sub(r"[{}\\\s]", lambda found: f"%{ord(found[0]):02X}", url)


_LEVELS = (0.001, 0.01, 0.05)  # three marks, two, one
_TO_TARGET = ("energy_to_target_j", "time_to_target_s")


def _measures(study: Comparison | Sweep) -> list[Measure]:
    metric, counted = study.metric, isinstance(study, Comparison)
    return [
        one
        for one in measures(metric, "")
        if one.label
        and (counted or one.kind != "count")
        and (metric.devices or not one.key.startswith("device_"))
    ]


def comparison_table(
    study: Comparison, *, baseline: str | None = None, narrow: bool = False
) -> str:
    """The table of a comparison for a paper."""
    rows, few = study.table(), (study.score, *_TO_TARGET)
    shown = [one for one in _measures(study) if not narrow or one.key in few]
    tests = {name: judged(study, name, baseline) for name in merits(study)}
    cells = [_cells(one, rows, tests.get(one.key)) for one in shown]
    columns = [Column("method", figures=False), *(_column(one, rows, narrow) for one in shown)]
    body = [[method_text(row), *(cell[k] for cell in cells)] for k, row in enumerate(rows)]
    return booktabs(
        Table(columns, body),
        caption=_caption(study),
        label="tab:comparison",
        notes=_notes_table(study, tests, baseline),
        wide=not narrow,
        compact=True,
    )


def sweep_table(study: Sweep, *, narrow: bool = False) -> str:
    """The table of a sweep for a paper: one row for each combination and method."""
    rows = study.summary_table()
    few = (study.score, "energy_to_target_j")
    shown = [one for one in _measures(study) if not narrow or one.key in few]
    cells = [_cells(one, rows, None) for one in shown]
    body: list[list[str]] = []
    for point in study.points:
        values = [_value_table(one, k) for one, k in zip(study.varied, point.at, strict=True)]
        for row in point.methods:
            k = len(body)
            body.append([*values, row["method"], *(column[k] for column in cells)])
            values = [""] * len(values)  # once for each combination
    columns = [
        *(Column(scale_of(one)[1]) for one in study.varied),
        Column("method", figures=False),
        *(_column(one, rows, narrow) for one in shown),
    ]
    return booktabs(
        Table(columns, body),
        caption=f"Methods on equal {study.equal} within each combination: "
        f"{' and '.join(one.words for one in study.varied)} varied.",
        label="tab:sweep",
        notes=_sweep_notes(study),
        wide=not narrow,
        compact=True,
    )


def _value_table(field: Varied, k: int) -> str:
    return f"{field.values[k] / scale_of(field)[0]:.4g}" if field.numeric else words_of(field, k)


def _sweep_notes(study: Sweep) -> list[str]:
    times = len(study.seeds)
    said = "One seed, hence no intervals."
    if times > 1:
        said = f"Means of {times} seeds ± half of the 95 % interval over seeds (Student's t)."
    _, target = default_target(1.0, study.metric, "the best final")
    target = f"The target is {target} of each combination."
    if study.wanted is not None:
        target = f"The target is a test {study.metric.label} of {study.wanted:g}."
    return [said, target, *filter(None, (_without(study, one) for one in study.methods))]


def _without(study: Sweep, method: str) -> str:
    """In how many combinations a method could not run, with the first reason."""
    rows = [row for point in study.points for row in point.methods if row["method"] == method]
    lost = [row for row in rows if row.get("iterations") is None]
    if not lost:
        return ""
    why = re.split(r"[:;] ", lost[0]["notes"][0])[0] if lost[0]["notes"] else lost[0]["status"]
    return f"{method} could not run in {len(lost)} of {len(rows)} combinations: {why}."


def _scale(column: Measure, rows: Sequence[dict[str, Any]]) -> tuple[float, str]:
    if column.unit in ("", "%"):
        return 0.01 if column.unit else 1.0, column.unit
    known = [row[column.key] for row in rows if row[column.key] is not None]
    return prefixed(max(known, default=1.0), column.unit)


def _column(column: Measure, rows: Sequence[dict[str, Any]], narrow: bool) -> Column:
    unit, name = escape(_scale(column, rows)[1]), column.label
    behind = f" [{unit}]" if unit else ""
    if narrow and " " in name:
        first, _, rest = name.partition(" ")
        stacked = rf"{escape(first)}\\{escape(rest)}{behind}"
        return Column(Tex(rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{stacked}\end{{tabular}}"))
    return Column(Tex(f"{escape(name)}{behind}"))


def _cells(column: Measure, rows: Sequence[dict[str, Any]], test: Judgement | None) -> list[str]:
    if column.kind == "count":
        return ["--" if row[column.key] is None else f"{row[column.key]:,}" for row in rows]
    scale, _ = _scale(column, rows)
    digits = _digits(column, rows, scale)
    marks = [_marks(test, k) for k in range(len(rows))]
    most = max(map(len, marks))
    best = None if test is None or test.best is None else rows[test.best][column.key]
    made: list[str] = []
    for row, mark in zip(rows, marks, strict=True):
        value, half = row[column.key], row[f"{column.key}_ci95"]
        if value is None:
            made.append(_missing(column, row))
            continue
        text = f"{value / scale:.{digits}f}"
        bold = best is not None and text == f"{best / scale:.{digits}f}"
        if half is not None and (test is not None or half / scale >= 0.5 * 10.0**-digits):
            text += rf" \pm {half / scale:.{digits}f}"
        made.append(_number(text, mark, most, bold=bold))
    return made


def _number(text: str, mark: str, most: int, *, bold: bool) -> Tex:
    """A figure; an invisible mark keeps those without one in line with the others."""
    text = rf"\mathbf{{{text}}}" if bold else text
    shown = rf"^{{{mark}}}" if mark else ""
    hidden = rf"\phantom{{^{{{'*' * (most - len(mark))}}}}}" if len(mark) < most else ""
    return Tex(f"${text}{shown}{hidden}$")


def _digits(column: Measure, rows: Sequence[dict[str, Any]], scale: float) -> int:
    """Decimals: one of per cent; otherwise three digits of the largest figure."""
    if column.unit == "%":
        return 1
    known = [abs(row[column.key]) for row in rows if row[column.key]]
    if not known:
        return 0
    return min(3, max(0, 2 - math.floor(math.log10(max(known) / scale))))


def _missing(column: Measure, row: dict[str, Any]) -> str:
    if column.kind == "figure" and column.unit in ("", "%") and "device_" not in column.key:
        return str(row["status"])  # why there are no figures
    if column.kind != "target" or row["iterations"] is None:
        return "--"
    return f"{row['reached']} of {row['seeds']} seeds" if row["reached"] else "not reached"


def _marks(test: Judgement | None, k: int) -> str:
    if test is None or math.isnan(test.p[k]):
        return ""
    return "*" * sum(test.p[k] < level for level in _LEVELS)


def _caption(study: Comparison) -> str:
    data = dataset_words(study.dataset or study.scenario.training.dataset)
    return f"Methods on equal {study.equal}: {device_words(study.scenario)}, {data}."


def _notes_table(study: Comparison, tests: dict[str, Judgement], baseline: str | None) -> list[str]:
    metric, wanted = study.metric, study.target
    figure = f"{100 * wanted:.1f} %" if metric.share else f"{wanted:.4g}"
    target = f"The target is a test {metric.label} of {figure} of the mean model."
    if not math.isfinite(study.target):
        return ["No method could run."]
    if len(study.seeds) == 1:
        return [f"One {study.unit}, hence neither intervals nor tests.", target]
    said = [
        f"Means of {study.repeats} ± half of the 95 % interval over {study.unit}s (Student's t). "
        "The best of a column is bold."
    ]
    if any(not math.isnan(p) for test in tests.values() for p in test.p):
        whom = "the best of the column" if baseline is None else baseline
        said.append(
            f"*, **, ***: it differs from {whom} with p < 0.05, 0.01, 0.001 "
            f"(two-sided t-test, paired by {study.unit}; Holm's correction for all methods of "
            "the column)."
        )
    return [*said, f"{target}{_open(study)}"]


def _open(study: Comparison) -> str:
    unsure = open_text(study.table())
    return f" What it takes to reach it is {unsure}." if unsure else ""
