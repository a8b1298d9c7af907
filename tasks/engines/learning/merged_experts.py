"""Experts' weights that hold the adapter, made from a base in host memory: late, or beside the sampling of a step.

They are needed by the next forward pass and not before, and fetching a base of 57 GiB takes a second: so it is begun
once the adapter is handed over, and waited for where the weights are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tasks.engines.learning.host_copies import fetched, host_copies

if TYPE_CHECKING:
    import torch

WEIGHTS = ("gate_up_proj", "down_proj")


class MergedExperts:
    """modules: `expert_module`s by their names, on one device; none where nothing is merged."""

    def __init__(self, modules: Mapping[str, Any], device: torch.device) -> None:
        self._places = {f"{name}.{weight}": (module, weight) for name, module in modules.items() for weight in WEIGHTS}
        self._base = host_copies({name: getattr(module, w).data for name, (module, w) in self._places.items()})
        self._device, self._aside = device, ThreadPoolExecutor(1, thread_name_prefix="merging")
        self._under_way: Future[None] | None = None
        self._behind = False

    def changed(self) -> None:
        """A or B are others now. Nothing may be under way."""
        self._behind = True

    def begin(self) -> None:
        """In a thread, unless there is nothing to do."""
        if self._behind and self._places and self._under_way is None:
            self._behind, self._under_way = False, self._aside.submit(self._overwrite)

    def finish(self) -> None:
        """From here on the weights are of A and B as they are."""
        self.begin()
        self.finish_begun()

    def finish_begun(self) -> None:
        """Wait for what was begun: until then A and B must stay as they are."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def _overwrite(self) -> None:
        for name, base in fetched(self._base, self._device):
            module, weight = self._places[name]
            module.overwrite(weight, base)
