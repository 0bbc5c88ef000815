"""Whether texts of a page lie on each other, or are cut off, by the places that a browser gives."""

from __future__ import annotations

from typing import Any

from tests.browser import Browser

# Numbers of devices on a map stand where the devices do; what scrolls is cut on purpose.
_APART = """(() => {
  const skipped = '.number, .scroll *, .log *, .tall *, aside *, dialog *, #tip, .skip';
  const own = (one) => [...one.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const seen = [...document.querySelectorAll('body *')].filter((one) => !one.matches(skipped)
    && !one.closest('.number, .visually-hidden, script, style, option, .how > div')
    && own(one) && one.checkVisibility({ visibilityProperty: true }));
  const boxes = seen.flatMap((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    const at = (one instanceof SVGElement ? one : range).getBoundingClientRect();
    return at.width && at.height ? [{ one, at, text: one.textContent.trim().slice(0, 40) }] : [];
  });
  const over = (a, b) => Math.min(Math.min(a.right, b.right) - Math.max(a.left, b.left),
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  const found = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (over(a.at, b.at) > 3 && !a.one.contains(b.one) && !b.one.contains(a.one))
      found.push(`${a.text} | ${b.text}`);
  }));
  for (const { one, at, text } of boxes) {
    const frame = one.closest('svg')?.getBoundingClientRect();
    if (frame && (at.left < frame.left - 2 || at.right > frame.right + 2))
      found.push(`cut: ${text}`);
  }
  return found.slice(0, 8);
})()"""


def illegible(browser: Browser) -> list[Any]:
    """Pairs of texts that lie on each other, and texts that a drawing cuts off."""
    found: list[Any] = browser.evaluate(_APART)
    return found
