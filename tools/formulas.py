r"""A hook of MkDocs: formulas become MathML when the site is built, so that readers load no script.

Pages write formulas as GitHub reads them: a fenced block ``math`` for a line of its own, and a code
span between dollar signs within a line. Only the part of TeX that the pages use is known; a command
that is not known stops the build.
"""

from __future__ import annotations

__all__ = ["FormulaError", "formulas", "mathml", "on_page_content", "on_page_markdown"]

import html
import re
from collections.abc import Iterator
from typing import Any

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"\$<code>(.*?)</code>\$([.,;:)]*)", re.DOTALL)  # with what follows it closely
_WRITTEN = re.compile(r"^```math\n(.*?)^```$|\$`(.+?)`\$", re.MULTILINE | re.DOTALL)
_TOKEN = re.compile(
    r"\\(?:text|mathrm|mathbb|begin|end)\{[^{}]*\}|\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S", re.DOTALL
)
_LETTERS = {
    "beta": "β", "Gamma": "Γ",
    "alpha": "α", "gamma": "γ", "delta": "δ", "Delta": "Δ", "varepsilon": "ε", "zeta": "ζ",
    "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "nu": "ν", "xi": "ξ", "pi": "π",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "chi": "χ", "infty": "∞", "nabla": "∇",
}  # fmt: skip
_OPERATORS = {
    "le": "≤", "ge": "≥", "ne": "≠", "approx": "≈", "propto": "∝", "in": "∈", "to": "→",
    "times": "×", "cdot": "·", "dots": "…", "cdots": "⋯", "iff": "⟺", "leftarrow": "←",
    "setminus": "∖", "sum": "∑", "prod": "∏", "pm": "±", "int": "∫",
}  # fmt: skip
_FENCES = {
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "lVert": "‖", "rVert": "‖",
    "lvert": "|", "rvert": "|", "{": "{", "}": "}",
}  # fmt: skip
_FUNCTIONS = {"ln", "log", "cos", "min", "max", "Pr"}
_WITH_LIMITS = {"sum", "prod", "min", "max"}  # their indices go below in a line of its own
_SPACES = {",": "0.17em", ";": "0.28em", " ": "0.25em", "quad": "1em", "qquad": "2em"}
_THIN = '<mspace width="0.17em"></mspace>'
_ACCENTS = {"bar": "¯", "tilde": "~"}
_DOUBLE = {"E": "𝔼"}
_SIGNS = {"-": "−", "'": "′", "*": "∗"}


class FormulaError(ValueError):
    """A formula that cannot be turned into MathML."""


class _Reader:
    """Reads the tokens of one formula from left to right."""

    def __init__(self, tex: str, display: bool) -> None:
        self.tex, self.display = tex, display
        self.tokens, self.at = _TOKEN.findall(tex), 0

    def fail(self, why: str) -> FormulaError:
        return FormulaError(f"{why} in the formula {self.tex.strip()!r}; see tools/formulas.py")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise self.fail(f"{wanted or 'something'} is missing before {token or 'the end'}")
        self.at += 1
        return token

    def row(self, *ends: str) -> str:
        """Everything up to one of the ends, which is left to the caller."""
        parts: list[str] = []
        while self.peek() not in ("", *ends):
            parts.append(self.scripted())
        return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"

    def scripted(self) -> str:
        """An atom with its index and exponent."""
        stacked = self.display and self.peek()[1:] in _WITH_LIMITS
        base, index, exponent = self.atom(), "", ""
        while self.peek() in ("_", "^"):
            if self.take() == "_":
                index = self.atom()
            else:
                exponent = self.atom()
        if not index and not exponent:
            return base
        low, high = ("under", "over") if stacked else ("sub", "sup")
        kind = "m" + low * bool(index) + high * bool(exponent)
        return f"<{kind}>{base}{index}{exponent}</{kind}>"

    def atom(self) -> str:
        """A letter, a number, a sign, a group, or a command with its arguments."""
        token = self.take()
        if token == "{":
            inside = self.row("}")
            self.take("}")
            return inside
        if token.startswith("\\"):
            return (
                self.worded(token)
                if token.endswith("}") and token[1] != "}"
                else (self.command(token[1:]))
            )
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in "()[]|":
            return f'<mo stretchy="false">{token}</mo>'
        if token in "+-=<>,;:/'.*":
            return f"<mo>{_SIGNS.get(token) or html.escape(token)}</mo>"
        raise self.fail(f"{token} has no meaning")

    def command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{_OPERATORS[name]}</mo>"
        if name in _FENCES:
            form = "postfix" if name[0] == "r" or name == "}" else "prefix"
            return f'<mo stretchy="false" form="{form}">{_FENCES[name]}</mo>'
        if name in _FUNCTIONS:
            space = "" if self.peek() in ("(", "\\left", "_", "^", "}", "") else _THIN
            return f'<mi mathvariant="normal">{name}</mi>{space}'
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in _ACCENTS:
            return f'<mover accent="true">{self.atom()}<mo>{_ACCENTS[name]}</mo></mover>'
        if name == "frac":
            return f"<mfrac>{self.atom()}{self.atom()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.atom()}</msqrt>"
        if name == "left":
            first, inside = self.fence(), self.row("\\right")
            self.take("\\right")
            return f"<mrow>{first}{inside}{self.fence()}</mrow>"
        raise self.fail(f"\\{name} is not known")

    def fence(self) -> str:
        token = self.take()
        return f"<mo>{_FENCES.get(token[1:], token)}</mo>"

    def worded(self, token: str) -> str:
        """Words, letters of another font, and lines that are aligned at &."""
        name, _, words = token[1:-1].partition("{")
        if name == "text":
            return f"<mtext>{html.escape(words).replace(' ', '&#160;')}</mtext>"
        if name == "mathrm":
            return f'<mi mathvariant="normal">{html.escape(words)}</mi>'
        if name == "mathbb" and words in _DOUBLE:
            return f"<mi>{_DOUBLE[words]}</mi>"
        if (name, words) != ("begin", "aligned"):
            raise self.fail(f"{token} is not known")
        cells, lines = [], []
        while True:
            cells.append(self.row("&", "\\\\", "\\end{aligned}"))
            end = self.take()
            if end != "&":
                side = ("right", "left")
                lines.append(
                    "".join(
                        f'<mtd style="text-align: {side[k % 2]}; padding: 0.2em 0">{cell}</mtd>'
                        for k, cell in enumerate(cells)
                    )
                )
                cells = []
            if end == "\\end{aligned}":
                rows = "".join(f"<mtr>{line}</mtr>" for line in lines)
                return f'<mtable displaystyle="true">{rows}</mtable>'


def mathml(tex: str, *, display: bool = False) -> str:
    r"""A formula as MathML.

    Args:
        tex: in TeX, without dollar signs.
        display: on a line of its own.

    Raises:
        FormulaError: a command that is not known, or braces that do not match.

    >>> mathml(r"a^{S_2} \le 1")
    '<math><mrow><msup><mi>a</mi><msub><mi>S</mi><mn>2</mn></msub></msup><mo>≤</mo><mn>1</mn></mrow></math>'
    """
    reader = _Reader(tex, display)
    inside = reader.row()
    return f'<math display="block">{inside}</math>' if display else f"<math>{inside}</math>"


def formulas(page: str) -> Iterator[tuple[str, bool]]:
    r"""The formulas of a page of Markdown, and whether each has a line of its own.

    >>> list(formulas("$`x`$ is\n```math\ny\n```\n"))
    [('x', False), ('y\n', True)]
    """
    for found in _WRITTEN.finditer(page):
        yield (found[2], False) if found[2] else (found[1], True)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the formulas that have a line of their own, which Markdown then leaves alone."""
    return _BLOCK.sub(
        lambda found: f'<div class="formula">{mathml(found[1], display=True)}</div>', markdown
    )


def on_page_content(content: str, **_: Any) -> str:
    """Replace the formulas within a line, of which Markdown has made code."""

    def replaced(found: re.Match[str]) -> str:
        formula = mathml(html.unescape(found[1]))
        # A line must not begin with the full stop that ends a formula.
        return f'<span class="formula">{formula}{found[2]}</span>' if found[2] else formula

    return _INLINE.sub(replaced, content)
