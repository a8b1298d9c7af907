"""Pieces of a study shared by processes that see the same root: jobs of a cluster, or hosts with one bucket.

No process leads. Each makes one piece at a time and holds its lease meanwhile; a piece whose holder died is free again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from flows.running.pieces import Piece, dispatch, next_pieces, piece_in
from flows.running.sessions import Listener, stages_of
from flows.study.resolve import Study
from storage.artifacts.store import Store
from storage.errors import Notice, UserError, as_user_error
from storage.leases import leases_of
from storage.stopping import was_stopped
from tasks.stage import Session

POLL_SECONDS = 2.0
WAITING = "other processes make all that can be made now: waiting"


def share_pieces(study: Study, store: Store, listener: Listener) -> None:
    """Make the costly pieces that no other process makes, until all are made. Errors as for `dispatch`."""

    def tell(message: str) -> None:
        warnings.warn(Notice(message), stacklevel=2)

    with stages_of(study, store, listener) as current:
        dispatch(partial(next_pieces, study, store, listener), Claims(current, study, store), tell)


@dataclass(slots=True)
class Claims:
    """Makes pieces in this process, the first free one at a time."""

    current: Session
    study: Study
    store: Store
    _open: list[Piece] = field(default_factory=list)

    def begin(self, piece: Piece) -> None:
        self._open.append(piece)

    def ended(self) -> Iterator[tuple[Piece, UserError | None]]:
        waited = False
        while True:
            for piece in self._open:
                with leases_of(self.store.root).claimed({f"piece-{piece.key}": ["whole"]}, wait=False) as mine:
                    if mine:
                        self._open.remove(piece)
                        yield piece, self._made(piece)
                        return
            if not waited:
                warnings.warn(Notice(WAITING), stacklevel=2)
            waited = True
            time.sleep(POLL_SECONDS)

    def _made(self, piece: Piece) -> UserError | None:
        """Make a piece, or find that another process has made it; return its error. A stop is raised."""
        try:
            piece_in(self.current, self.study, self.store, piece.ref, piece.shard)
        except Exception as error:
            if was_stopped():
                raise
            return as_user_error(error)
        return None
