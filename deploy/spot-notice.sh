#!/usr/bin/env bash
# Run a command on a spot machine, and send it SIGTERM when the cloud announces that it takes the machine away:
#   deploy/spot-notice.sh aws|gcp|azure varband run paper --root s3://bucket/team
set -u
cloud=$1 metadata=${METADATA:-http://169.254.169.254}
shift
case $cloud in aws | gcp | azure) ;; *) echo "$cloud is none of aws, gcp and azure" >&2; exit 2 ;; esac
ask() { curl --silent --fail --max-time 2 "$@"; }
noticed() {
  case $cloud in
    aws) token=$(ask -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/latest/api/token") &&
      ask -H "X-aws-ec2-metadata-token: $token" "$metadata/latest/meta-data/spot/instance-action" >/dev/null ;;
    gcp) [ "$(ask -H 'Metadata-Flavor: Google' "$metadata/computeMetadata/v1/instance/preempted")" = TRUE ] ;;
    azure) ask -H 'Metadata: true' "$metadata/metadata/scheduledevents?api-version=2020-07-01" | grep -q '"Preempt"' ;;
  esac
}
"$@" &
run=$!
trap 'kill -TERM $run' TERM INT # a command in the background does not receive Ctrl-C
while kill -0 $run 2>/dev/null; do
  noticed && kill -TERM $run && break
  sleep "${EVERY:-5}"
done
# a signal ends a wait, not the run
until wait $run; code=$?; [ $code -le 128 ] || ! kill -0 $run 2>/dev/null; do :; done
exit $code
