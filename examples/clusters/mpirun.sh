#!/usr/bin/env bash
# Several hosts by mpirun: mpirun.sh my.toml
#
# Run on 22 November 2026 with Open MPI 4.1.4 of Debian on one host with 2 cores (a hostfile `localhost slots=2`), by
# scripts/slurm_check.sh. Not run on several hosts.
set -euo pipefail

hosts=${HOSTS:-$(dirname "$0")/hostfile}
# mpirun gives each process its number, but does not tell where process 0 is: that is the first host of the file.
first=$(awk '!/^#/ {print $1; exit}' "$hosts")
count=$(awk -F slots= '!/^#/ {count += $2} END {print count}' "$hosts")
# The processes know each other by a secret. Its value is not among the arguments, where others would see it.
PIPEWRIGHT_TOKEN=${PIPEWRIGHT_TOKEN:-$(openssl rand -hex 32)}
export PIPEWRIGHT_TOKEN
exec mpirun --hostfile "$hosts" -n "$count" -x MASTER_ADDR="$first" -x PIPEWRIGHT_TOKEN \
  "${PIPEWRIGHT:-pipewright}" train "$@"
