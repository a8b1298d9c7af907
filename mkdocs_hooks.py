"""Write the table of a study's settings into the site when it is built."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    from flows.study.settings import page

    return markdown.replace("<!-- settings -->", page()) if "<!-- settings -->" in markdown else markdown
