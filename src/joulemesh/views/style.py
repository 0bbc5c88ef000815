"""The house"s style of figures, and the files that they are saved as."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_pgf import RendererPgf
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from joulemesh.base.errors import printable
from joulemesh.base.files import write_bytes
from joulemesh.views.latex import escape
from joulemesh.views.printing import read_formats

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.serif": ["STIXGeneral"],
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "savefig.dpi": 300.0,
    "pdf.fonttype": 42,  # journals refuse Type 3 fonts
    "svg.hashsalt": "joulemesh",  # the same figure gives the same bytes
}
# In a paper's column: a face that goes with its Times or Libertine, everything in 8 points.
_PRINTED: dict[Any, Any] = {
    "font.family": ["serif", "DejaVu Sans"],  # the second has what the first lacks
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "figure.titlesize": 9.0,
}
_SUFFIXES = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_DRAWING = threading.RLock()


@contextmanager
def styled(changes: Mapping[str, Any] | None = None, *, printed: bool = False) -> Iterator[None]:
    """Draw in the house's style, one thread at a time, and put back the settings that were."""
    paper = _PRINTED if printed else {}
    settings: dict[Any, Any] = {**_STYLE, **dict(changes or {}), **paper}
    with _DRAWING, mpl.rc_context(settings):
        yield


@contextmanager
def styled_as(figure: Figure) -> Iterator[None]:
    """The style that a figure was drawn in, for what is made of it only when it is saved."""
    texts = figure.findobj(Text)
    faces = {text.get_fontfamily()[0] for text in texts if isinstance(text, Text)}
    with styled(printed="serif" in faces):
        yield


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """A figure as a file's content; the same figure gives the same bytes."""
    content = BytesIO()
    with styled_as(figure):
        figure.savefig(content, format=suffix[1:], metadata=_SUFFIXES[suffix])
    return content.getvalue()


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # what LaTeX may not take in the name of an image
_MATH = re.compile(r"(?<!\\)(\$(?:\\.|[^$\\])+\$)")

_HEAD = r"""%% Needs \usepackage{pgf}; include it with \input{NAME.pgf}.
"""
_PICTURES = r"""%% Its raster images stand beside it: NAME-img0.png and so on. From another folder:
%%   \usepackage{import}  \import{FOLDER/}{NAME.pgf}
"""


def pgf_files(figure: Figure, stem: str) -> dict[str, bytes]:
    """A figure as PGF."""
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
    """What LaTeX gets for a text of Matplotlib's; formulas are LaTeX already."""
    if not math:
        return escape(text.replace(r"\$", "$"))
    pieces = _MATH.split(text)
    return "".join(
        piece if k % 2 else escape(piece.replace(r"\$", "$")) for k, piece in enumerate(pieces)
    )


def save_figure(figure: Figure, stem: str | Path, formats: str | Sequence[str]) -> list[Path]:
    """Write a figure as files STEM.FORMAT; all are drawn before the first is written.

    A PGF figure with raster images brings these along as ``STEM-img0.png`` and so on. Nothing
    depends on the day or the machine, and the figure itself stays as it was.
    """
    path, made = Path(stem), dict[str, bytes]()
    for one in read_formats(formats):
        if one == "pgf":
            made |= pgf_files(figure, path.name)
        else:
            made[f"{path.name}.{one}"] = figure_bytes(figure, f".{one}")
    for name, content in made.items():
        write_bytes(path.with_name(name), content)
    return [path.with_name(name) for name in made]
