#!/usr/bin/env bash
# Training under a real Slurm, which this script makes from Debian's packages on this machine and takes down again.
#
#   scripts/slurm_check.sh                  build, then check
#   scripts/slurm_check.sh PIPEWRIGHT       check with this program
#
# Trains a few steps alone, by `srun`, by `srun --mpi=pmix`, by the scripts of examples/clusters, by `mpirun` inside of a
# batch job, and by `srun` on two nodes with 2 tasks and 1. Both nodes are this machine. Each has to end with the same
# weights. Ends with a table, and with 1 when one differs.
# Needs root: for apt-get, if a package is missing, and because Slurm runs as the user who starts it here.
# Functions are called by name.
# shellcheck disable=SC2317,SC2329
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
root=$PWD

say() { printf '%s\n' "$*"; }
give_up() {
  say "slurm_check: $*" >&2
  exit 2
}

program=${1:-}
if [ -z "$program" ]; then
  cargo build --release || give_up 'it does not build'
  program=${CARGO_TARGET_DIR:-target}/release/pipewright
fi
program=$(realpath "$program")
[ -x "$program" ] || give_up "no program at $program"

[ "$(id -u)" = 0 ] || give_up 'needs root'
missing=()
for package in slurmd slurmctld slurm-client munge openmpi-bin; do
  dpkg -s "$package" > /dev/null 2>&1 || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"; } \
    > /dev/null 2>&1 || give_up "apt-get cannot install ${missing[*]}"
fi

scratch=$(mktemp -d)
chmod 755 "$scratch"
export SLURM_CONF=$scratch/slurm.conf

# Ends what this script has started: jobs first, then the daemons, which are its children.
daemons=()
end() {
  timeout 5 squeue -h -o %i 2> /dev/null | xargs -r timeout 5 scancel
  if [ ${#daemons[@]} -gt 0 ]; then kill "${daemons[@]}" 2> /dev/null; fi
  wait
  rm -rf "$scratch"
}
trap end EXIT

# A daemon for credentials and a node of its own: nothing of a Slurm that may be here is used. What differs from most
# clusters is what needs no cgroups: the processes of a job are found by their parents.
mkdir "$scratch"/{state,spool}
(umask 077 && head -c 128 /dev/urandom > "$scratch/munge.key")
node=$(hostname -s)
cat > "$SLURM_CONF" << END
ClusterName=check
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$scratch/munge.socket
SlurmctldPort=26817
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool/%n
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.%n.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 Port=26818 CPUs=$(nproc) State=UNKNOWN
NodeName=$node-2 NodeHostname=$node NodeAddr=127.0.0.1 Port=26819 CPUs=$(nproc) State=UNKNOWN
PartitionName=one Nodes=$node Default=YES MaxTime=INFINITE State=UP
PartitionName=two Nodes=ALL MaxTime=INFINITE State=UP
END
munged --foreground --force --key-file="$scratch/munge.key" --socket="$scratch/munge.socket" \
  --pid-file="$scratch/munged.pid" --seed-file="$scratch/munge.seed" > "$scratch/munged.log" 2>&1 &
daemons+=($!)
for _ in $(seq 50); do
  [ -S "$scratch/munge.socket" ] && break
  sleep 0.1
done
slurmctld -D > /dev/null 2>&1 &
daemons+=($!)
for name in "$node" "$node-2"; do
  mkdir "$scratch/spool/$name"
  slurmd -D -N "$name" > /dev/null 2>&1 &
  daemons+=($!)
done
is_idle() { [ "$(timeout 5 sinfo -h -p two -o %T 2> /dev/null)" = idle ]; }
for _ in $(seq 100); do
  is_idle && break
  sleep 0.1
done
is_idle || give_up "the nodes are not idle: $(tail -qn 2 "$scratch"/*.log)"

cp examples/gpt-text.toml "$scratch/my.toml"
small=(--set model.dim=32 --set model.layers=2 --set data.seq=32 --set model.dropout=0.1 --set pipeline.stages=6
  --set train.validate_every=0 --steps 5 --weights-hash)
cd "$scratch" || exit 2
# A task on another node has to know it.
PIPEWRIGHT_TOKEN=$(openssl rand -hex 32)
export PIPEWRIGHT_TOKEN
export PIPEWRIGHT=$program OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# run NAME COMMAND...: keeps its first line and its hash. Two minutes are more than any takes.
rows=() failed=0 expected=''
run() {
  local name=$1 first hash
  shift
  if ! timeout 120 "$@" my.toml "${small[@]}" --run-dir "$name" > "$name.out" 2> "$name.err"; then
    cat "$name.out" "$name.err" >&2
  fi
  first=$(grep -m 1 '^processes ' "$name.out" || echo 'one process')
  hash=$(sed -n 's/^weights //p' "$name.out")
  expected=${expected:-$hash}
  if [ -z "$hash" ] || [ "$hash" != "$expected" ]; then failed=1; fi
  rows+=("$(printf '%-22s %.16s  %s' "$name" "${hash:-FAILED}" "$first")")
}

# batch SCRIPT ARGUMENTS...: runs a batch script of two tasks to its end, and prints what it printed.
batch() {
  sbatch --quiet --wait --nodes=1 --ntasks-per-node=2 --ntasks=2 --output="$scratch/batch.out" "$@"
  local status=$?
  cat "$scratch/batch.out"
  return "$status"
}
export -f batch
export scratch

cat > nested.sh << 'END'
#!/usr/bin/env bash
exec mpirun -n 2 --oversubscribe "$PIPEWRIGHT" train "$@"
END
echo 'localhost slots=2' > hostfile
export HOSTS=$scratch/hostfile

run alone "$program" train
run srun srun -n 2 "$program" train
if srun --mpi=list 2>&1 | grep -q pmix; then
  run srun-pmix srun --mpi=pmix -n 2 "$program" train
else
  rows+=('srun-pmix              skipped: this Slurm has no such plugin')
fi
run batch-slurm.sh bash -c 'batch "$@"' batch "$root/examples/clusters/slurm.sh"
run mpirun-in-a-job bash -c 'batch "$@"' batch "$scratch/nested.sh"
run mpirun.sh "$root/examples/clusters/mpirun.sh"

run two-nodes srun -p two -N 2 -n 3 "$program" train

say "$(slurmd -V), $(mpirun --version | head -n 1), $(nproc) cores, $(date -u +%F)"
printf '%s\n' "${rows[@]}"
[ $failed = 0 ] && say 'all have the same weights'
exit $failed
