"""Prefect's server for a team. A run counts as lost when its heartbeats stop, but not when the server was down."""

import asyncio
import os
import secrets
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from storage.errors import UserError
from tasks.engines.hardware import quiet_libraries

REPO = Path(__file__).resolve().parents[2]
#: Time that each live run has to send a heartbeat after the server was down (they come every 30 s).
GRACE = timedelta(seconds=60)
#: The password of the server, and that of its clients.
AUTH = ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING")
#: Address of Redis. With it, Prefect's server keeps messages, their order and leases there.
REDIS_URL = "PREFECT_REDIS_MESSAGING_URL"
REDIS = {
    "PREFECT_MESSAGING_BROKER": "prefect_redis.messaging",
    "PREFECT_MESSAGING_CACHE": "prefect_redis.messaging",
    "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "prefect_redis.ordering",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect_redis.lease_storage",
    # by default the server keeps events in memory for up to 10 s; if it is killed then, it may lose a run's first
    # heartbeat, and a run without a heartbeat never counts as lost
    "PREFECT_REDIS_MESSAGING_PUBLISHER_BATCH_SIZE": "1",
}


def start(host: str, port: int, *, unprotected: bool = False) -> NoReturn:
    """Replace this process by the server, so that stopping the process stops the server. Raise UserError if there is no
    password and none can be stored. unprotected: serve without a password if none is set."""
    check_prefect("server")
    from sqlalchemy.exc import SQLAlchemyError

    quiet_libraries()
    os.umask(0o077)  # only this user may read its database and settings
    if text := protect(host, port, unprotected=unprotected):
        print(text, flush=True)
    if os.environ.get(REDIS_URL):
        if find_spec("prefect_redis") is None:
            raise UserError(f"server: {REDIS_URL} needs prefect-redis: install varband[redis]")
        for name, module in REDIS.items():
            os.environ.setdefault(name, module)
    os.environ.setdefault("PREFECT_SERVER_EVENTS_CAUSAL_ORDERING", "flows.server.ordering")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    try:
        asyncio.run(_wait_for_heartbeats())
    except (OSError, SQLAlchemyError) as error:
        text = " ".join(str(error).split())[:200]
        raise UserError(
            f"server: the database of PREFECT_API_DATABASE_CONNECTION_URL cannot be used ({text}); start it, or correct"
            " its address"
        ) from None
    words = ["-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *words])


def protect(host: str, port: int, *, unprotected: bool = False) -> str:
    """Make the server require a password and answer only pages of its own UI. Return a message for the user.

    If no password is set, the first start generates one and stores it in Prefect's profile (mode 0600), where workers,
    `varband server deploy` and other clients of this user find it. Raise UserError as `start` does.
    """
    from prefect.settings import get_current_settings, update_current_profile

    settings = get_current_settings()
    pages = {f"http://{host}:{port}", f"http://localhost:{port}", os.environ.get("PREFECT_UI_URL", "").rstrip("/")}
    if settings.server.api.cors_allowed_origins == "*":
        os.environ.setdefault("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", ",".join(sorted(filter(None, pages))))
    known, client = settings.server.api.auth_string, settings.api.auth_string
    if known is not None and known.get_secret_value():
        return ""
    if unprotected:
        os.environ.pop("PREFECT_SERVER_API_AUTH_STRING", None)
        return "server: without a password: any account of this machine can run code as this user"
    if known is not None:
        raise UserError(
            "server: PREFECT_SERVER_API_AUTH_STRING is empty. Without a password every account of this machine can run"
            " code as this user. Set it to user:password, unset it to get a generated password, or give --open"
        )
    password = client.get_secret_value() if client else f"varband:{secrets.token_urlsafe(24)}"
    names, path = AUTH, settings.profiles_path
    assert path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        update_current_profile(dict.fromkeys(names, password))
    except OSError as error:
        raise UserError(
            f"server: the password cannot be stored in {path} ({error.strerror}): set {names[0]} and {names[1]} to"
            " user:password, or give --open to serve without one"
        ) from None
    return f"server: a password was made; the UI asks for the value of PREFECT_API_AUTH_STRING in {path}"


async def _wait_for_heartbeats() -> None:
    """Give every live run GRACE to send a heartbeat, because the server missed those that came while it was down."""
    import sqlalchemy as sa
    from prefect.server.database import provide_database_interface

    db, soonest = provide_database_interface(), datetime.now(UTC) + GRACE
    await db.create_db()
    async with db.session_context(begin_transaction=True) as session:
        due = db.AutomationBucket.end < soonest
        await session.execute(sa.update(db.AutomationBucket).where(due).values(end=soonest))


def check_prefect(command: str) -> None:
    """Raise UserError if Prefect is missing, with the extra to install."""
    if find_spec("prefect") is None:
        raise UserError(f"{command} needs prefect: install varband[prefect]")
