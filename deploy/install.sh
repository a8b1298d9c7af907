#!/bin/sh
# install.sh, as root on Debian 12 in a checkout at /opt/varband: Postgres, the server, workers and dashboards.
set -eu
apt-get install -y postgresql postgresql-client git python3-dev python3-venv make g++ libnuma1
useradd --system --create-home --home-dir /var/lib/varband varband
git config --system --add safe.directory /opt/varband # otherwise workers cannot read their commit
cd /opt/varband
make .venv/.ready
install -d -m 700 -o varband -g varband /srv/varband/root /srv/varband/models /srv/varband/data /srv/backup/varband
install -D -m 640 -g varband deploy/varband.env /etc/varband/env
runuser -u postgres -- createuser varband
runuser -u postgres -- createdb --owner varband prefect
cp deploy/*.service deploy/*.timer /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now varband-server varband-cpu varband-dashboards varband-backup.timer
runuser -u varband -- sh -c 'set -a; . /etc/varband/env; .venv/bin/varband server deploy; .venv/bin/varband doctor'
runuser -u varband -- .venv/bin/prefect config view --show-secrets | grep AUTH # the UI asks for it
