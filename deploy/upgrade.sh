#!/bin/sh
# upgrade.sh, as root in /opt/varband: pull and install the newest commit, and restart the services that run here. Back
# up first.
set -eu
cd /opt/varband
git pull
make .venv/.ready
cp deploy/*.service deploy/*.timer /etc/systemd/system/
systemctl daemon-reload
systemctl try-restart varband-server varband-cpu varband-dashboards 'varband-gpu@*'
runuser -u varband -- sh -c 'set -a; . /etc/varband/env; .venv/bin/varband server deploy'
