"""How long the server's automations wait for an event that another one follows: seconds, not Prefect's 15 minutes.

The server remembers in memory alone which events it has seen. After a restart, whatever follows an event from before is
held back; so is every event of a run that a schedule made less than five minutes ahead, whose Scheduled state has no
event. Until then no lost run starts again and nobody is told. Order matters among events within a second or two.

The server reads it as PREFECT_SERVER_EVENTS_CAUSAL_ORDERING=flows.server.ordering; `varband server start` sets that.
"""

from __future__ import annotations

from datetime import timedelta

from prefect.server.events.ordering import memory  # noqa: TID253

PATIENCE = timedelta(seconds=3)

# the memory is Prefect's own, and reads its patience here
memory.PRECEDING_EVENT_LOOKBACK = PATIENCE  # pyright: ignore[reportPrivateImportUsage]
CausalOrdering = memory.CausalOrdering
