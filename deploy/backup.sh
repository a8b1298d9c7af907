#!/bin/sh
# backup.sh FOLDER: root and Prefect's database, while both are in use. Run again it adds what is new.
set -eu
to=$1
: "${PREFECT_API_DATABASE_CONNECTION_URL:?}" "${VARBAND_ROOT:?}" # without an address these tools take the user's own database
database=$(printf %s "$PREFECT_API_DATABASE_CONNECTION_URL" | sed 's/+asyncpg//')
mkdir -p "$to"
pg_dump --format=custom --file="$to/prefect.new" "$database"
mv "$to/prefect.new" "$to/prefect.dump"
varband export "$to/store" --root "$VARBAND_ROOT" --renew
