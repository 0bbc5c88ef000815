"""Names that a page must show and never interpret."""

from __future__ import annotations

NAMES = (
    "<script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 2'>",
    "</script><!-- ]]> -->",
    "\"quoted\" and 'quoted' and `quoted`",
    "javascript:window.harmed=3",
    "${window.harmed = 4}",
    "\u202eright to left\u202c حساس",
    "a-name-that-never-ends-" * 40,
    "&lt;b&gt;&amp;</b>",
    "=HYPERLINK(0)",
)
