#!/bin/sh
# backup.sh FOLDER: root and Prefect's database, while both are in use. Run again it adds what is new.
set -eu
umask 077 # the copy is read by its user alone
to=$1
. "$(dirname "$0")/database.sh"
mkdir -p "$to"
pg_dump --format=custom --file="$to/prefect.new" "$database"
mv "$to/prefect.new" "$to/prefect.dump"
varband export study "$to/store" --root "$VARBAND_ROOT" --renew
