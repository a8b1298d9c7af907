"""What parameters of methods may be."""

from __future__ import annotations

from typing import Annotated

from tasks.domain.ranges import Within

AtLeastOne = Annotated[int, Within(1)]
AtLeastTwo = Annotated[int, Within(2)]
Share = Annotated[float, Within(0, 1, without="least")]
