"""Prefect's server as a team needs it: a run is lost when its beats stop, not when nobody could hear them."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

from flows.server.installed import check_prefect
from tasks.engines.environment import quiet_libraries

REPO = Path(__file__).resolve().parents[2]
#: A run beats every 30 s: what is alive has beaten by then, however long the server was away.
GRACE = timedelta(seconds=60)


def start(host: str, port: int) -> NoReturn:
    """In place of this process, so that whoever stops it stops the server."""
    check_prefect("server")
    quiet_libraries()
    os.environ.setdefault("PREFECT_SERVER_EVENTS_CAUSAL_ORDERING", "flows.server.ordering")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    asyncio.run(_wait_for_beats())
    words = ["-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *words])


async def _wait_for_beats() -> None:
    """What automations wait for was due while the server was away: a silence that nobody could hear is none."""
    import sqlalchemy as sa
    from prefect.server.database import provide_database_interface

    db, soonest = provide_database_interface(), datetime.now(UTC) + GRACE
    await db.create_db()
    async with db.session_context(begin_transaction=True) as session:
        due = db.AutomationBucket.end < soonest
        await session.execute(sa.update(db.AutomationBucket).where(due).values(end=soonest))
