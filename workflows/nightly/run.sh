#!/bin/sh
# One run of one config, for cron or the systemd service beside this file:
#
#   run.sh CONFIG LOG_FOLDER
#
# What the run says is appended to LOG_FOLDER/NAME-YYYY-MM.log, one file a month; nothing is mailed.
# The exit code is that of decant-batch (docs/operating.md, "Exit codes"). DECANT_BATCH names the
# program where it is not on the PATH.
set -eu
if [ $# -ne 2 ]; then
  echo "usage: run.sh CONFIG LOG_FOLDER" >&2
  exit 2
fi
config=$1
name=$(basename "$config")
mkdir -p "$2"
exec >>"$2/${name%.*}-$(date +%Y-%m).log" 2>&1
echo
echo "== $(date '+%Y-%m-%d %H:%M:%S %z') $config"
# exec: signals go straight to the run, and its exit code is this script's.
exec "${DECANT_BATCH:-decant-batch}" run "$config"
