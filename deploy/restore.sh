#!/bin/sh
# restore.sh FOLDER: what backup.sh kept, into a root and an empty database. Stop server and workers first.
set -eu
umask 077
from=$1
. "$(dirname "$0")/database.sh"
pg_restore --no-owner --exit-on-error --single-transaction --dbname="$database" "$from/prefect.dump"
varband export study "$VARBAND_ROOT" --root "$from/store"
varband store verify --root "$VARBAND_ROOT"
