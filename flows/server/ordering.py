"""How long the server's automations wait for the preceding event: seconds instead of Prefect's 15 minutes.

Prefect holds back an event until its predecessor was seen. Without Redis the server remembers only in memory what it
has seen, so a restart holds back what follows. With and without Redis it holds back what follows an event that a killed
machine never sent, and every event of a run that a schedule created less than five minutes ahead, because its Scheduled
state has no event. Until then no lost run restarts and no notification is sent. Order matters only among events within
a second or two.

Prefect 3.7.7 has no setting for this time, and the method that waits is no part of its interface CausalOrdering, so
the constant of the module is replaced.

The server loads this module through PREFECT_SERVER_EVENTS_CAUSAL_ORDERING=flows.server.ordering, which `varband server
start` sets.
"""

from __future__ import annotations

import os
from datetime import timedelta
from importlib import import_module
from typing import Any

from flows.server.start import REDIS_URL

PATIENCE = timedelta(seconds=3)

_kept: Any = import_module(
    "prefect_redis.ordering" if os.environ.get(REDIS_URL) else "prefect.server.events.ordering.memory"
)
# both read their patience here
_kept.PRECEDING_EVENT_LOOKBACK = PATIENCE
CausalOrdering = _kept.CausalOrdering
