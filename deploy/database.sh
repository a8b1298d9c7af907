# Sourced by backup.sh and restore.sh. Sets `database`, the address of Prefect's database without its password: other
# accounts of the machine may read the arguments of a process. PostgreSQL's tools find the password in PGPASSFILE.
: "${PREFECT_API_DATABASE_CONNECTION_URL:?}" "${VARBAND_ROOT:?}" # without an address these tools take the user's own database
password=$(mktemp)
trap 'rm -f "$password"' EXIT
database=$(
	python3 - 3> "$password" <<'PYTHON'
import os
from urllib.parse import unquote, urlsplit

address = os.environ["PREFECT_API_DATABASE_CONNECTION_URL"].replace("+asyncpg", "", 1)
who, at, where = urlsplit(address).netloc.rpartition("@")
user, _, password = who.partition(":")
if password:
    escaped = unquote(password).replace("\\", "\\\\").replace(":", "\\:")
    os.write(3, f"*:*:*:*:{escaped}\n".encode())
print(address.replace(f"{who}@", f"{user}@", 1))
PYTHON
)
if [ -s "$password" ]; then export PGPASSFILE="$password"; fi
