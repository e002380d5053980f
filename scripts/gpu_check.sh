#!/usr/bin/env bash
# What has to hold on a GPU, and how fast it is there, in one command of under 9 minutes. Ends with a table, and with 1 when a part failed.
#
#   scripts/gpu_check.sh                   build (which is not of the 9 minutes), then check
#   scripts/gpu_check.sh --build DIR       build only, into DIR: for a GPU's machine that has no cargo
#   scripts/gpu_check.sh --binaries DIR    check with what --build made
#   scripts/gpu_check.sh --compile-only    what a machine without a GPU can show: NVRTC compiles the kernels, the emulator runs the tests
#
# CUDA's libraries are those that `pipewright devices` finds. PyTorch, for the benchmark, is that of $PYTHON (python3).
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
LIMIT=520
# Package and test of all that uses a GPU.
TESTS=(
  pipewright-stages/cuda_kernels
  pipewright-stages/cuda_attention
  pipewright/golden
  pipewright/gpus
  pipewright/allocations
  pipewright/processes
)
EMULATOR_TESTS=(
  pipewright-stages/cuda_compile
  pipewright-stages/cuda_emulator
  pipewright-stages/cuda_emulator_products
  pipewright-stages/cuda_emulator_nccl
)

mode=check bin=target/gpu_check
while [ $# -gt 0 ]; do
  case $1 in
    --compile-only) mode=compile bin=target/gpu_check_debug ;;
    --build | --binaries)
      [ $# -gt 1 ] || { echo "$1 needs a folder" >&2; exit 2; }
      mode=${1#--} bin=$2
      shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export scratch
rows=() failed=0 began=0

row() { rows+=("$(printf '%-46s %-8s %5s  %s' "$@")"); }

# part NAME SECONDS COMMAND...: the command under a limit, and a row of the table. A line with `skipped:` says why there was nothing to do.
part() {
  local name=$1 limit=$2 log=$scratch/log started=$SECONDS left code why
  shift 2
  left=$((LIMIT - SECONDS + began))
  if [ "$mode" != compile ] && [ "$left" -lt "$limit" ]; then limit=$left; fi
  if [ "$limit" -lt 5 ]; then
    row "$name" skipped - 'no time was left'
    return
  fi
  printf '\n== %s (%d s so far)\n' "$name" $((SECONDS - began))
  # A shell of its own: COMMAND may be one of the functions exported below.
  timeout -k 5 "$limit" bash -c '"$@"' part "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  why=$(sed -n 's/.*skipped: *//p' "$log" | head -1 | cut -c -100)
  case $code in
    0) row "$name" "$([ -n "$why" ] && echo skipped || echo ok)" $((SECONDS - started)) "$why"; return ;;
    124 | 137) why="did not end in $limit s" ;;
    *) why=$(grep -E 'panicked at|^error|FAILED|: error' "$log" | head -1 | cut -c -100) ;;
  esac
  failed=1
  row "$name" FAILED $((SECONDS - started)) "$why"
}

finish() {
  printf '\n%-46s %-8s %5s  %s\n' part result s reason
  printf '%s\n' "${rows[@]}"
  exit "$failed"
}

# The command, the tests and the bench in one folder, laid out as cargo does, so that tests find the command.
build() {
  local into=$1 release=$2 test
  shift 2
  mkdir -p "$into/deps"
  cargo build $release --bin pipewright --bench gpu --message-format json-render-diagnostics >"$scratch/built" || return 1
  for test in "$@"; do
    cargo test $release --no-run --package "${test%/*}" --test "${test#*/}" --message-format json-render-diagnostics >>"$scratch/built" || return 1
  done
  "$PYTHON" - "$scratch/built" "$into" <<'EOF' || return 1
import json, pathlib, shutil, sys
into = pathlib.Path(sys.argv[2])
for line in open(sys.argv[1]):
    one = json.loads(line)
    if one.get("executable"):
        kind, name = one["target"]["kind"][0], one["target"]["name"]
        shutil.copy(one["executable"], into / name if kind == "bin" else into / "deps" / f"{kind}-{name}")
EOF
  pwd >"$into/built-at"
}

# Tests know their files by the folder they were built in.
stand_in() {
  local built_at
  built_at=$(cat "$bin/built-at") || { echo "$bin was not made by --build" >&2; exit 2; }
  [ -e "$built_at" ] && return
  mkdir -p "$(dirname "$built_at")" && ln -s "$PWD" "$built_at" && echo "$built_at now leads here"
}

# The libraries of CUDA that the command finds, for all programs.
find_libraries() {
  local path
  path=$("$bin/pipewright" devices --format json | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["library_path"] or "")')
  if [ -n "$path" ]; then export LD_LIBRARY_PATH=$path; fi
}

run_tests() { # SECONDS, then tests
  local limit=$1 test filter
  shift
  for test in "$@"; do
    filter=
    case $test in
      */golden | */allocations) filter=gpu ;;
      */processes) filter='gpus:: --test-threads=1' ;;
    esac
    part "test ${test#*/}" "$limit" "$bin/deps/test-${test#*/}" $filter --nocapture
  done
}

# What two processes on one GPU get through with: sockets and few blocks. That each is a host of its own to NCCL, which refuses two ranks on
# one GPU of one host, tests say themselves.
export NCCL_SOCKET_IFNAME==lo NCCL_SOCKET_FAMILY=AF_INET NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
export NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_CUMEM_ENABLE=0 NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MIN_CTAS=1 NCCL_MAX_CTAS=2
export NCCL_RAS_ENABLE=0 NCCL_DEBUG=WARN

# train RANK &: one of two processes of a long run on the first GPU.
train() {
  exec env NCCL_HOSTID="process$1" RANK="$1" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
    "$bin/pipewright" train examples/gpt-text.toml --steps 1000000 --run-dir "$scratch/killed" \
    --set model.dim=64 --set model.heads=1 --set model.layers=2 --set data.seq=16 --set pipeline.micro_batch_size=1 \
    --set pipeline.devices=cuda:0 --set pipeline.dtype=bf16 --set train.validate_every=0 --set checkpoint.every=0
}

# When one is killed the other one ends, and says why.
killed() {
  port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  train 0 >/dev/null 2>"$scratch/killed.err" &
  local first=$!
  train 1 &
  local second=$!
  until [ -s "$scratch/killed/metrics.jsonl" ]; do
    kill -0 "$first" "$second" || { cat "$scratch/killed.err"; return 1; }
    sleep 0.2
  done
  kill -9 "$second"
  local at=$SECONDS
  wait "$first"
  local code=$?
  cat "$scratch/killed.err"
  echo "process 0 ended with $code after $((SECONDS - at)) s"
  [ "$code" -ne 0 ] && [ $((SECONDS - at)) -le 30 ] && grep -q 'process 1' "$scratch/killed.err"
}

# What a step should take by the costs of its layers, and what it takes: the last line has both.
predicted() {
  local sets=(--set model.dim=512 --set model.heads=8 --set data.seq=512 --set pipeline.stages=1)
  sets+=(--set pipeline.devices=cuda:0 --set pipeline.dtype=bf16 --set train.validate_every=0 --set checkpoint.every=0)
  "$bin/pipewright" profile examples/gpt-text.toml "${sets[@]}" --out "$scratch/costs.json" &&
    "$bin/pipewright" train examples/gpt-text.toml --steps 20 --run-dir "$scratch/predicted" "${sets[@]}" \
      --set "pipeline.costs=$scratch/costs.json"
}

# sanitize TOOL SECONDS TEST
sanitize() {
  local tool=$1 seconds=$2 test=$3 code
  command -v compute-sanitizer >/dev/null || { echo 'skipped: there is no compute-sanitizer on the PATH'; return; }
  timeout -k 5 "$seconds" compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/deps/test-$test" --test-threads 1
  code=$?
  if [ "$code" -eq 124 ]; then
    echo "skipped: not through in $seconds s, nothing found until then"
    return 0
  fi
  return "$code"
}

benchmark() {
  if "$PYTHON" -c 'import torch, safetensors; assert torch.cuda.is_available()' 2>/dev/null; then
    "$PYTHON" benches/gpu/compare.py --python "$PYTHON" --binary "$bin/deps/bench-gpu"
  else
    "$bin/deps/bench-gpu" train || return 1
    echo "skipped: no PyTorch to compare with: $PYTHON has none with a GPU and safetensors (PYTHON=...)"
  fi
}

on_a_gpu() {
  "$bin/pipewright" devices
  if ! "$bin/pipewright" devices --format json | grep -q '"cuda:0"'; then
    echo 'no GPU: try --compile-only' >&2
    exit 1
  fi
  began=$SECONDS
  run_tests 60 "${TESTS[@]}"
  part 'of two processes by NCCL one is killed' 60 killed
  part 'a step as predicted by measured costs' 40 predicted
  part 'compute-sanitizer, memory: kernels' 60 sanitize memcheck 50 cuda_kernels
  part 'compute-sanitizer, memory: attention' 40 sanitize memcheck 30 cuda_attention
  part 'compute-sanitizer, races: attention' 40 sanitize racecheck 30 cuda_attention
  part 'benchmark: kernels' 60 "$bin/deps/bench-gpu" kernels
  part 'benchmark: training' 400 benchmark
}

on_the_emulator() {
  run_tests 1200 "${EMULATOR_TESTS[@]}" "${TESTS[@]}"
  local emulator
  emulator=$(ls -td target/tmp/emulator/*/ 2>/dev/null | head -1)
  if [ -n "$emulator" ]; then
    export LD_LIBRARY_PATH=$PWD/${emulator%/}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    part 'the bench of kernels runs' 300 "$bin/deps/bench-gpu" --size tiny kernels
    part 'of two processes by NCCL one is killed' 120 killed
    part 'the bench of training runs' 300 "$bin/deps/bench-gpu" --size tiny --steps 4 train --stages 1 2
  fi
  for name in compute-sanitizer 'speed, and PyTorch beside it'; do
    row "$name" skipped - 'needs a GPU'
  done
}

case $mode in
  build) build "$bin" --release "${TESTS[@]}"; exit ;;
  check) build "$bin" --release "${TESTS[@]}" || exit 1 ;;
  compile) build "$bin" '' "${EMULATOR_TESTS[@]}" "${TESTS[@]}" || exit 1 ;;
  binaries) stand_in ;;
esac
bin=$(realpath "$bin")
export bin PYTHON
export -f train killed predicted sanitize benchmark
find_libraries
if [ "$mode" = compile ]; then on_the_emulator; else on_a_gpu; fi
finish
