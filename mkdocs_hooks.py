"""What the site writes when it is built: the settings of a study, from the model's field docs."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    from flows.study.settings import page, sections

    return markdown.replace("<!-- settings -->", page(sections())) if "<!-- settings -->" in markdown else markdown
