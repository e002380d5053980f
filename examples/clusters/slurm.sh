#!/usr/bin/env bash
# A batch job of Slurm: sbatch slurm.sh my.toml
#
# Run on 22 November 2026 with Slurm 22.05.8 of Debian, on one node with 2 cores (--nodes=1 --ntasks=2), with
# sockets and with MPI=pmix, by scripts/slurm_check.sh. Not run on several nodes.
#
#SBATCH --job-name=pipewright
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=1-00:00:00
#SBATCH --signal=TERM@300
#SBATCH --output=%x-%j.out
set -euo pipefail

# With 4 tasks, the number of ranks in my.toml must be a multiple of 4. This folder has to be on a file system of
# all nodes. `srun` says each task's number, how many there are, and the hosts: nothing else needs to be set.
# Five minutes before the job's time is over, Slurm sends SIGTERM to the tasks. Then the state is saved.
#
# A build with MPI is started by the plugin that its library knows: MPI=pmix sbatch slurm.sh my.toml
# The tasks know each other by a secret, which srun gives to all of them.
PIPEWRIGHT_TOKEN=${PIPEWRIGHT_TOKEN:-$(openssl rand -hex 32)}
export PIPEWRIGHT_TOKEN
exec srun --kill-on-bad-exit=1 ${MPI:+--mpi=$MPI} "${PIPEWRIGHT:-pipewright}" train "$@"
