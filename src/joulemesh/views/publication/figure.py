"""Figures for a paper: in the formats that are asked for, at the width of a journal's column."""

from __future__ import annotations

__all__ = ["FORMATS", "WIDTHS", "pgf_files", "save_figure", "width_in"]

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_pgf import RendererPgf
from matplotlib.figure import Figure
from PIL import Image

from joulemesh.base.files import write_bytes
from joulemesh.base.printable import printable
from joulemesh.views.publication.latex import escape
from joulemesh.views.publication.printing import FORMATS, WIDTHS, read_formats, width_in
from joulemesh.views.style import figure_bytes, styled_as

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # what LaTeX may not take in the name of an image
_MATH = re.compile(r"(?<!\\)(\$(?:\\.|[^$\\])+\$)")

_HEAD = r"""%% Needs \usepackage{pgf}; include it with \input{NAME.pgf}.
"""
_PICTURES = r"""%% Its raster images stand beside it: NAME-img0.png and so on. From another folder:
%%   \usepackage{import}  \import{FOLDER/}{NAME.pgf}
"""


def pgf_files(figure: Figure, stem: str) -> dict[str, bytes]:
    """A figure as PGF.

    Args:
        figure: what is drawn.
        stem: of the files' names.

    Returns:
        The content of each file by its name: ``STEM.pgf``, and ``STEM-img0.png`` and so on where
        something in the figure is a raster image (``-`` for what LaTeX would not take in a name).

    >>> made = pgf_files(Figure(figsize=(2, 1)), "empty")
    >>> list(made), made["empty.pgf"].decode().splitlines()[1]
    (['empty.pgf'], '\\\\begingroup%')
    """
    text, images = StringIO(), dict[str, bytes]()
    width, height = (float(side) for side in figure.get_size_inches())
    dpi = figure.dpi
    with styled_as(figure):
        figure.dpi = 72  # as other vector formats, so that rasters and line widths are alike
        try:
            renderer = _Renderer(figure, text, stem, images)
            mixed: Any = MixedModeRenderer(figure, width, height, 72, renderer)  # type: ignore[no-untyped-call]
            figure.draw(mixed)
        finally:
            figure.dpi = dpi
    head = (_HEAD + (_PICTURES if images else "")).replace("NAME", printable(stem))
    lines = [
        head,
        "\\begingroup%\n\\makeatletter%\n",
        "\\providecommand\\mathdefault[1]{#1}%\n",  # Matplotlib's, in the labels of log scales
        "\\begin{pgfpicture}%\n",
        f"\\pgfpathrectangle{{\\pgfpointorigin}}{{\\pgfqpoint{{{width:f}in}}{{{height:f}in}}}}%\n",
        "\\pgfusepath{use as bounding box, clip}%\n",
        text.getvalue(),
        "\\end{pgfpicture}%\n\\makeatother%\n\\endgroup%\n",
    ]
    return {f"{stem}.pgf": "".join(lines).encode(), **images}


class _Renderer(RendererPgf):
    """Matplotlib's, with text measured by fonts, escaped, and images kept in memory."""

    def __init__(self, figure: Figure, file: StringIO, stem: str, images: dict[str, bytes]) -> None:
        super().__init__(figure, file)  # type: ignore[no-untyped-call]
        self._stem, self._images = _UNSAFE.sub("-", stem), images

    def get_text_width_height_descent(
        self, s: str, prop: Any, ismath: Any
    ) -> tuple[float, float, float]:
        found: tuple[float, float, float] = RendererBase.get_text_width_height_descent(
            self, s, prop, ismath
        )
        return found

    def draw_text(
        self,
        gc: Any,
        x: float,
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        source = _source(s, math=bool(ismath))
        super().draw_text(gc, x, y, source, prop, angle, ismath, mtext)  # type: ignore[no-untyped-call]

    def draw_image(self, gc: Any, x: float, y: float, im: Any, transform: Any = None) -> None:
        height, width = im.shape[:2]
        if not width or not height:
            return
        name = f"{self._stem}-img{len(self._images)}.png"
        content, inch = BytesIO(), 1.0 / self.dpi
        Image.fromarray(im[::-1]).save(content, "PNG")
        self._images[name] = content.getvalue()
        if transform is None:
            shift = rf"\pgfsys@transformshift{{{x * inch:f}in}}{{{y * inch:f}in}}"
            size = f"width={width * inch:f}in,height={height * inch:f}in"
        else:
            a, b, c, d, e, f = transform.frozen().to_values()
            turn = "".join(f"{{{one * inch:f}}}" for one in (a, b, c, d))
            shift = rf"\pgfsys@transformcm{turn}{{{(e + x) * inch:f}in}}{{{(f + y) * inch:f}in}}"
            size = "width=1in,height=1in"
        self.fh.write("\\begin{pgfscope}%\n")
        self._print_pgf_clip(gc)  # type: ignore[no-untyped-call]
        shown = rf"\includegraphics[interpolate=false,{size}]{{{name}}}"
        self.fh.write(f"{shift}%\n\\pgftext[left,bottom]{{{shown}}}%\n\\end{{pgfscope}}%\n")


def _source(text: str, *, math: bool) -> str:
    r"""What LaTeX gets for a text of Matplotlib's; formulas are LaTeX already.

    >>> _source("a_b 5 %", math=False), _source(r"cost $10^{-2}$", math=True)
    ('a\\_b 5 \\%', 'cost $10^{-2}$')
    """
    if not math:
        return escape(text.replace(r"\$", "$"))
    pieces = _MATH.split(text)
    return "".join(
        piece if k % 2 else escape(piece.replace(r"\$", "$")) for k, piece in enumerate(pieces)
    )


_FLATTEST = 0.62  # height by width of a figure that is made narrower


def save_figure(
    figure: Figure,
    stem: str | Path,
    formats: str | Sequence[str],
    *,
    width: str | float | None = "ieee",
) -> list[Path]:
    """Write a figure in several formats; all are drawn before the first is written.

    Fonts are embedded as TrueType, nothing depends on the day or the machine, and the figure
    itself stays as it was. A figure that is drawn within ``styled(printed=True)`` (see
    `joulemesh.views.style`) has a serif face and no text below 8 points. Draw it at ``width_in``
    inches, so that it is laid out for its column; otherwise it is laid out again at that width,
    with a height in proportion, but not flatter than the golden section.

    Args:
        figure: what is drawn.
        stem: path without a suffix; each format adds its own.
        formats: some of `FORMATS`, in a list or in one text with commas.
        width: one of `WIDTHS`, inches, or None for that of the figure.

    Returns:
        The files that were written, in the order of the formats. A PGF figure with raster images
        brings these along as ``STEM-img0.png`` and so on.

    Raises:
        ScenarioError: an unknown format or width, or a place that cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = save_figure(Figure(), Path(folder, "curves"), "pdf,pgf", width="acm")
    >>> [path.name for path in made]
    ['curves.pdf', 'curves.pgf']
    """
    asked, path = read_formats(formats), Path(stem)
    inches = None if width is None else width_in(width)
    made: dict[str, bytes] = {}
    with _at_width(figure, inches):
        for one in asked:
            if one == "pgf":
                made |= pgf_files(figure, path.name)
            else:
                made[f"{path.name}.{one}"] = figure_bytes(figure, f".{one}")
    for name, content in made.items():
        write_bytes(path.with_name(name), content)
    return [path.with_name(name) for name in made]


@contextmanager
def _at_width(figure: Figure, inches: float | None) -> Iterator[None]:
    """Lay the figure out at a width, and put back the size that it had."""
    width, height = (float(side) for side in figure.get_size_inches())
    if inches is None or math.isclose(inches, width, rel_tol=1e-6):
        yield
        return
    in_proportion = height * inches / width
    try:
        figure.set_size_inches(inches, max(in_proportion, min(height, _FLATTEST * inches)))
        yield
    finally:
        figure.set_size_inches(width, height)
