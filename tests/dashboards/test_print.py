"""The report on A4: folded tables are open, no column is cut off, pages have numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.dashboards.conftest import Study

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: A4 less its margins, in CSS pixels.
WIDTH = 703
CUT = """width => [...document.querySelectorAll('table')].filter(table => {
  const place = table.getBoundingClientRect()
  return !table.closest('#queries') && (place.height == 0 || place.right > width + 1)
}).map(table => (table.closest('figure') || table.closest('section')).id)"""

#: What could stand at the foot of a page, and what it is the title of on the next.
LEFT_ALONE = """() => [...document.querySelectorAll('h2, h3, .lead, figcaption')].filter(
  one => getComputedStyle(one).breakAfter != 'avoid').map(one => one.textContent)"""


def test_every_table_is_printed_whole(study: Study, browser: Browser) -> None:
    text = study.page("report.html")
    page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
    page.set_content(text)
    folded = "[...document.querySelectorAll('figure details:not([open])')].length"
    assert page.evaluate(folded) > 5
    page.emulate_media(media="print")
    assert page.evaluate(CUT, WIDTH) == []
    assert page.evaluate(LEFT_ALONE) == []
    printed = page.pdf(prefer_css_page_size=True)
    assert re.search(rb"/MediaBox\s*\[0 0 59[45][.\d]* 84[12]", printed)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 3
    assert 'content:counter(page) " / " counter(pages)' in text
    page.close()
