"""What another package's scaffold does (`varband.scaffolds`), held to what it may return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storage.errors import UserError
from tasks.domain.plugins import asked, plugged

GROUP = "varband.scaffolds"


def brought(code: str, function: str) -> Callable[..., Any] | None:
    """`prompt`, `parse` or `solved` of a scaffold that is named with its version; null where it has none.

    Errors: UserError for code that is not installed, or in another version; when it is called, if it raises or returns
    what it may not.
    """
    if not hasattr(plugged(GROUP, code), function):
        return None

    def called(*given: str) -> Any:
        found = asked(GROUP, code, function, *given)
        if not (_is_two(found) if function == "parse" else isinstance(found, str)):
            wanted = "not trace and answer, each a text or null" if function == "parse" else "which is no text"
            raise UserError(f"scaffold {code}: `{function}` returned {found!r:.60}, {wanted}")
        return found

    return called


def _is_two(found: object) -> bool:
    two = isinstance(found, tuple | list) and len(found) == 2
    return two and all(one is None or isinstance(one, str) for one in found)  # type: ignore[union-attr]
