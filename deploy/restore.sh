#!/bin/sh
# restore.sh FOLDER: what backup.sh kept, into a root and an empty database. Stop server and workers first.
set -eu
from=$1
pg_restore --no-owner --exit-on-error --single-transaction \
  --dbname="$(printf %s "$PREFECT_API_DATABASE_CONNECTION_URL" | sed 's/+asyncpg//')" "$from/prefect.dump"
varband export "$VARBAND_ROOT" --root "$from/store"
varband verify --root "$VARBAND_ROOT"
