"""Text and tables for LaTeX, whatever characters names hold."""

from __future__ import annotations

__all__ = ["Tex", "booktabs", "escape"]

import unicodedata
from collections.abc import Sequence

from joulemesh.errors import ScenarioError
from joulemesh.printable import printable

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
    "α": r"\ensuremath{\alpha}",
    "β": r"\ensuremath{\beta}",
    "γ": r"\ensuremath{\gamma}",
    "δ": r"\ensuremath{\delta}",
    "ε": r"\ensuremath{\varepsilon}",
    "ζ": r"\ensuremath{\zeta}",
    "η": r"\ensuremath{\eta}",
    "θ": r"\ensuremath{\theta}",
    "κ": r"\ensuremath{\kappa}",
    "λ": r"\ensuremath{\lambda}",
    "μ": r"\ensuremath{\mu}",
    "µ": r"\ensuremath{\mu}",
    "ρ": r"\ensuremath{\rho}",
    "σ": r"\ensuremath{\sigma}",
    "τ": r"\ensuremath{\tau}",
    "φ": r"\ensuremath{\varphi}",
    "ω": r"\ensuremath{\omega}",
    "Δ": r"\ensuremath{\Delta}",
    "Σ": r"\ensuremath{\Sigma}",
    "Ω": r"\ensuremath{\Omega}",
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
    r"""Make any text safe to stand in a LaTeX document, with every engine and font encoding.

    Letters with accents become commands, which BibTeX sorts by. What pdfLaTeX has no letter for is
    set by number with XeLaTeX and LuaLaTeX, and named by it with pdfLaTeX.

    Args:
        text: anything; `Tex` is left as it is.

    Returns:
        LaTeX that shows the text.

    >>> print(escape("balanced:tau1=4_50% & Hegedűs"))
    balanced:tau1=4\_50\% \& Heged{\H{u}}s
    >>> print(escape("a\x07\n界"))
    a\textbackslash{}x07\textbackslash{}n{\ifdefined\pdftexversion[U+754C]\else\char"754C \fi}
    """
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
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    label: str,
    notes: Sequence[str] = (),
    align: str = "",
    wide: bool = False,
    compact: bool = False,
) -> str:
    r"""A table in the style of the package ``booktabs``, floating, with its caption above.

    Texts are escaped, except those that are `Tex` already.

    Args:
        columns: their headings.
        rows: cells in the order of the columns.
        caption: what it shows.
        label: by which the paper refers to it, such as ``"tab:methods"``.
        notes: below the table, one paragraph.
        align: a letter for each column; unless given, the first is to the left, others to the
            right.
        wide: over both columns of the page (``table*``).
        compact: in small type with little space between columns, for many figures.

    Returns:
        The LaTeX source; a comment in its first line names the package that it needs.

    Raises:
        ScenarioError: a row with another number of cells, or a label that LaTeX cannot refer to.

    >>> print(booktabs(["method", "J"], [["d_psgd", "3"]], caption="Energy.", label="tab:e"))
    % Needs \usepackage{booktabs}.
    \begin{table}[t]
      \centering
      \caption{Energy.}
      \label{tab:e}
      \begin{tabular}{@{}lr@{}}
        \toprule
        method & J \\
        \midrule
        d\_psgd & 3 \\
        \bottomrule
      \end{tabular}
    \end{table}
    """
    wrong = next((row for row in rows if len(row) != len(columns)), None)
    if wrong is not None:
        raise ScenarioError(
            f"a row of {len(wrong)} cells does not fit a table of {len(columns)} columns"
        )
    if not label or set(label) & set("\\{}#%~^$&,= \n\t"):
        raise ScenarioError(
            f"label {label!r} is unusable: use letters, digits and : . - _ as in tab:methods"
        )
    kind = "table*" if wide else "table"
    body = [_row(row) for row in rows]
    lines = [
        r"% Needs \usepackage{booktabs}.",
        rf"\begin{{{kind}}}[t]",
        r"  \centering",
        rf"  \caption{{{escape(caption)}}}",
        rf"  \label{{{label}}}",
        *([r"  \footnotesize\setlength{\tabcolsep}{4pt}"] if compact else []),
        rf"  \begin{{tabular}}{{@{{}}{align or 'l' + 'r' * (len(columns) - 1)}@{{}}}}",
        r"    \toprule",
        f"    {_row(columns)}",
        r"    \midrule",
        *(f"    {row}" for row in body),
        r"    \bottomrule",
        r"  \end{tabular}",
        *_notes(notes),
        rf"\end{{{kind}}}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    """One line; a cell that begins with a bracket must not become the option of the line's end."""
    row = " & ".join(escape(cell) for cell in cells)
    return (f"{{}}{row}" if row.startswith(("[", "*")) else row) + r" \\"


def _notes(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    said = " ".join(escape(note) for note in notes)
    return [r"  \par\smallskip", rf"  \parbox{{\linewidth}}{{\footnotesize {said}}}"]
