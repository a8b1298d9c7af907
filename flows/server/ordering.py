"""Let a server without Redis wait seconds for a preceding event, and not 15 minutes as Prefect does.

Prefect holds back an event until it has seen the event before. Without Redis, the server remembers seen events only in
memory, so a restart holds back the events that follow: a lost run would not restart, and no notification would be sent.
The order matters only for events within a second or two.

Prefect 3.7.7 has no setting for this time, and the method that waits is not part of its interface CausalOrdering, so
the constant of the module is replaced. With Redis, which remembers seen events, nothing is replaced
(`flows.server.start.REDIS`).

The server loads this module through PREFECT_SERVER_EVENTS_CAUSAL_ORDERING=flows.server.ordering, which `varband server
start` sets.
"""

from datetime import timedelta

from prefect.server.events.ordering import memory  # noqa: TID253

PATIENCE = timedelta(seconds=3)

memory.PRECEDING_EVENT_LOOKBACK = PATIENCE  # pyright: ignore[reportPrivateImportUsage]
CausalOrdering = memory.CausalOrdering
