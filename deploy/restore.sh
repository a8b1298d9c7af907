#!/bin/sh
# restore.sh FOLDER: what backup.sh kept, into a root and an empty database. Stop server and workers first.
set -eu
from=$1
: "${PREFECT_API_DATABASE_CONNECTION_URL:?}" "${VARBAND_ROOT:?}" # without an address these tools take the user's own database
database=$(printf %s "$PREFECT_API_DATABASE_CONNECTION_URL" | sed 's/+asyncpg//')
pg_restore --no-owner --exit-on-error --single-transaction --dbname="$database" "$from/prefect.dump"
varband export "$VARBAND_ROOT" --root "$from/store"
varband verify --root "$VARBAND_ROOT"
