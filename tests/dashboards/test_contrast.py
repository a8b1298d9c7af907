"""Text of the app stands out from what it is written on: at least 4.5 to 1 (WCAG 2.2, level AA)."""

from __future__ import annotations

import pytest

from tests.dashboards.conftest import Study
from tests.dashboards.visits import serving, visit

FAINT = """() => {
  const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4
  const light = c => .2126 * linear(c[0]) + .7152 * linear(c[1]) + .0722 * linear(c[2])
  const parts = said => { const found = said.match(/[\\d.]+/g).map(Number); return found.length < 4 ? [...found, 1] : found }
  const over = (below, c, a) => below.map((v, i) => a * c[i] + (1 - a) * v)
  const faint = []
  for (const element of document.querySelectorAll('h1, h2, h3, p, a, label, li, code, summary, span, .role-axis text, .role-legend text')) {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element)
    const text = [...element.childNodes].filter(n => n.nodeType == 3).map(n => n.data.trim()).join(' ').trim()
    if (!text || !box.width || style.visibility == 'hidden' || !style.color.startsWith('rgb')) continue
    let opacity = 1, layers = []
    for (let e = element; e; e = e.parentElement) {
      const own = getComputedStyle(e)
      opacity *= Number(own.opacity)
      if (own.backgroundColor.startsWith('rgb')) layers.push(parts(own.backgroundColor))
    }
    if (!opacity) continue
    const below = layers.reverse().reduce((b, c) => over(b, c, c[3]), [255, 255, 255])
    const ink = parts(element.ownerSVGElement ? style.fill : style.color), [a, b] = [light(over(below, ink, ink[3] * opacity)), light(below)]
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05)
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)}: ${text.slice(0, 60)}`)
  }
  return faint
}"""


@pytest.mark.parametrize("name", ["overview", "bands", "training", "results", "claims"])
def test_text_can_be_read(browser, study: Study, name: str) -> None:
    with serving(study.root) as url:
        page, _ = visit(browser, f"{url}/{name}")
        assert page.locator("h1").count() == 1
        assert page.evaluate(FAINT) == []
        page.close()
