"""How long the server's automations wait for the preceding event: seconds instead of Prefect's 15 minutes.

The server remembers only in memory which events it has seen. After a restart it holds back every event whose
predecessor came before the restart, and every event of a run that a schedule created less than five minutes ahead,
because its Scheduled state has no event. Until then no lost run restarts and no notification is sent. Order matters
only among events within a second or two.

The server loads this module through PREFECT_SERVER_EVENTS_CAUSAL_ORDERING=flows.server.ordering, which `varband server
start` sets on a machine without Redis. In Redis the events that were seen outlive a restart.
"""

from __future__ import annotations

from datetime import timedelta

from prefect.server.events.ordering import memory  # noqa: TID253

PATIENCE = timedelta(seconds=3)

# the memory is Prefect's own, and reads its patience here
memory.PRECEDING_EVENT_LOOKBACK = PATIENCE  # pyright: ignore[reportPrivateImportUsage]
CausalOrdering = memory.CausalOrdering
