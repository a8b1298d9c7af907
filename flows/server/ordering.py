"""Make a server without Redis wait seconds for a preceding event, instead of Prefect's 15 minutes.

Prefect holds back an event until its predecessor was seen. Without Redis the server remembers only in memory what it
has seen, so a restart holds back what follows: a lost run would not restart, and no notification would be sent. Order
matters only among events within a second or two.

Prefect 3.7.7 has no setting for this time, and the method that waits is no part of its interface CausalOrdering, so
the constant of the module is replaced. With Redis, which remembers the events that it has seen, nothing is replaced
(`flows.server.start.REDIS`).

The server loads this module through PREFECT_SERVER_EVENTS_CAUSAL_ORDERING=flows.server.ordering, which `varband server
start` sets.
"""

from datetime import timedelta

from prefect.server.events.ordering import memory  # noqa: TID253

PATIENCE = timedelta(seconds=3)

memory.PRECEDING_EVENT_LOOKBACK = PATIENCE  # pyright: ignore[reportPrivateImportUsage]
CausalOrdering = memory.CausalOrdering
