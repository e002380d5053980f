#!/usr/bin/env bash
# What has to hold on a GPU, and how fast it is there, in one command of under 9 minutes. Ends with a table, and with 1 when a part failed or
# no time was left for one.
#
#   scripts/gpu_check.sh                   build (which is not of the 9 minutes), then check
#   scripts/gpu_check.sh --build DIR       build only, into DIR: for a GPU's machine that has no cargo
#   scripts/gpu_check.sh --binaries DIR    check with what --build made
#   scripts/gpu_check.sh ... --from PART   go on with what another call had no time for: its last line says where
#   scripts/gpu_check.sh --compile-only    what a machine without a GPU can show: NVRTC compiles the kernels, the emulator runs the tests
#
# Where there are several GPUs, replicas of stages come first: no machine with two has run them. Then comes what is most valuable: what was
# guessed of speed, beside what is measured. Then tests, and what takes long. All that was guessed is printed once more at the end, as a
# table. With `--only tests`, `--only bench`, `--only sanitize` or `--only attention` that part has the 9 minutes to itself. The last is
# run only so: it tries attention's forward by wgmma, which is off by default, on an H100 or H200.
# LIMIT=SECONDS takes the place of the 9 minutes. CUDA's libraries are those that `pipewright devices` finds. PyTorch, for the benchmark, is
# the one of $PYTHON (python3).
# Functions are called by name; folders are named by hashes.
# shellcheck disable=SC2012,SC2317,SC2329
set -uo pipefail

PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-520}
# Package and test of all that uses a GPU.
TESTS=(
  pipewright-stages/cuda_kernels
  pipewright-stages/cuda_layers
  pipewright-stages/cuda_copies
  pipewright-stages/cuda_nccl
  pipewright/golden
  pipewright/gpus
  pipewright/allocations
  pipewright-cli/processes
)
EMULATOR_TESTS=(
  pipewright-stages/cuda_compile
  pipewright-stages/cuda_emulator
  pipewright-stages/cuda_emulator_defects
  pipewright-stages/cuda_emulator_nccl
  pipewright/gpu_bench
  pipewright/ranges
)

usage() {
  sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

mode=check bin='' only='' from='' again=$0
while [ $# -gt 0 ]; do
  case $1 in
    --compile-only) mode=compile again+=' --compile-only' ;;
    --build | --binaries)
      [ $# -gt 1 ] || usage
      mode=${1#--} bin=$(realpath -m "$2") again+=" $1 $(printf %q "$2")"
      shift ;;
    --only)
      case ${2:-} in tests | bench | sanitize | attention) only=$2 again+=" --only $2" ;; *) usage ;; esac
      shift ;;
    --from)
      [ $# -gt 1 ] || usage
      from=$2
      shift ;;
    *) usage ;;
  esac
  shift
done
case $mode in build) [ -z "$only$from" ] || usage ;; compile) [ -z "$only" ] || usage ;; esac
cd "$(dirname "$0")/.." || exit 2
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
bin=$(realpath -m "${bin:-$target/gpu_check_$mode}")

scratch=$(mktemp -d)
log=$scratch/log guesses=$scratch/guesses rows=() failed=0 group='' running='' rest=''
export bin mode scratch guesses PYTHON

# What is found must not hang on how this was started.
PATH=$PATH:/usr/local/cuda/bin
export VIRTUAL_ENV=${VIRTUAL_ENV:-$("$PYTHON" -c 'import sys; print(sys.prefix)' 2>/dev/null)}
[ -n "${HOME:-}${XDG_CACHE_HOME:-}" ] || export XDG_CACHE_HOME=$scratch/cache

row() { rows+=("$(printf '%-46s %-8s %5s  %s' "$@")"); }

finish() {
  if [ -s "$guesses" ]; then
    printf '\n%-50s %14s %14s %9s  %s\n' '' predicted measured ratio note
    cat "$guesses"
  fi
  printf '\n%-46s %-8s %5s  %s\n' part result s reason
  printf '%s\n' "${rows[@]}"
  if [ -n "$from" ]; then
    printf "\nno part is called '%s'\n" "$from" >&2
    failed=1
  fi
  if [ -n "$rest" ]; then
    printf "\nNot all was done. To go on: %s --from '%s'\n" "$again" "$rest"
    failed=1
  fi
  exit "$failed"
}

stop_group() {
  if [ -n "$group" ]; then kill -9 -- "-$group" 2>/dev/null; fi
  group=
}

trap 'stop_group; rm -rf "$scratch"' EXIT
trap 'failed=1 rest=${rest:-$running}; row "stopped by a signal" FAILED - ""; finish' INT TERM

# left_out NAME SECONDS: a row for a part that did not have all its time. The first of them is where to go on.
left_out() {
  local why='no time was left'
  if [ "$seconds" -gt "$LIMIT" ]; then why="it may take $seconds s: raise LIMIT"; fi
  row "$1" 'left out' "$2" "$why"
  rest=${rest:-$1}
}

# part NAME SECONDS COMMAND...: the command under a limit, and a row of the table. A line with `skipped:` says why there was nothing to do.
part() {
  local name=$1 started=$SECONDS code why result=FAILED
  local -x limit=$2 seconds=$2
  shift 2
  : >"$log"
  if [ "$name" = "$from" ]; then from=; fi
  if [ -n "$from" ]; then return; fi
  if [ "$mode" != compile ] && [ $((LIMIT - SECONDS)) -lt "$limit" ]; then limit=$((LIMIT - SECONDS)); fi
  if [ "$limit" -lt 5 ]; then
    left_out "$name" -
    return
  fi
  running=$name
  printf '\n== %s (%d s so far)\n' "$name" "$SECONDS"
  rm -f "$scratch"/said.*
  # A shell of its own: COMMAND may be one of the functions exported below. And a process group: nothing of it outlives the part.
  timeout -k 10 "$limit" bash -c '"$@"' part "$@" >"$log" 2>&1 &
  group=$!
  tail -n +1 -s 0.2 -f --pid "$group" "$log" &
  wait "$group"
  code=$?
  stop_group
  wait
  why=$(sed -n 's/.*skipped: *//p' "$log" | head -1)
  case $code in
    0)
      if grep -q '^test result: ok\. 0 passed' "$log"; then why='no test ran'; elif [ -n "$why" ]; then result=skipped; else result=ok; fi ;;
    124 | 137)
      if [ "$limit" -lt "$seconds" ]; then
        left_out "$name" $((SECONDS - started))
        return
      fi
      why="did not end in $limit s" ;;
    *) why=$(grep -E 'panicked at|^error|FAILED|: error|^=+ *(Error|Invalid|Race)' "$log" | head -1)
      why=${why:-$(tail -1 "$log")} ;;
  esac
  running=''
  row "$name" "$result" $((SECONDS - started)) "$(cut -c -100 <<<"$why")"
  if [ "$result" = FAILED ]; then
    failed=1
    cat "$scratch"/said.* 2>/dev/null
  fi
}

# The command, the tests and the bench in one folder, laid out as cargo does, so that tests find the command.
build() {
  local into=$1 release=$2 test
  shift 2
  mkdir -p "$into/deps"
  cargo build ${release:+"$release"} --bin pipewright --bench gpu --message-format json-render-diagnostics >"$scratch/built" || return 1
  for test in "$@"; do
    cargo test ${release:+"$release"} --no-run --package "${test%/*}" --test "${test#*/}" --message-format json-render-diagnostics >>"$scratch/built" || return 1
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

# What is there, and the libraries of CUDA that the command finds, for all programs but the peer of the benchmark, which has its own.
find_libraries() {
  local path
  timeout -k 5 60 "$bin/pipewright" devices --format json >"$scratch/devices.json"
  path=$("$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["library_path"] or "")' <"$scratch/devices.json")
  export PEER_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
  if [ -n "$path" ]; then export LD_LIBRARY_PATH=$path; fi
}

run_tests() { # SECONDS, then tests
  local limit=$1 test
  shift
  for test in "$@"; do
    local name=${test#*/} seconds=$limit filter=()
    case $name in
      golden | allocations) filter=(gpu) ;;
      # The tests of eight subjects.
      cuda_layers) seconds=$((3 * limit)) ;;
      # Each of its tests starts processes, which start CUDA and NCCL.
      processes) filter=(gpus:: --test-threads=1) seconds=$((3 * limit)) ;;
    esac
    part "test $name" "$seconds" "$bin/deps/test-$name" "${filter[@]}" --nocapture
    if [ "$name" = cuda_kernels ]; then bounds; fi
  done
}

# The kernels that come nearest to the bounds of their errors, as rows of the table of guesses. The functions are the GPU's own here.
bounds() {
  sed -nE 's/^(.*): ([0-9.]+) of ([0-9.]+)$/\1\t\2\t\3/p' "$log" | awk -F'\t' '
    $3 > 1 && $2 / $3 > most[$1] {
      most[$1] = $2 / $3
      row[$1] = sprintf("%-50s %14s %14s %9.3f  bound, and what came of it, in expected errors", substr("error of " $1, 1, 50), $3, $2, $2 / $3)
    }
    END { for (name in row) print most[name] "\t" row[name] }' | sort -rn | head -5 | cut -f 2 >>"$guesses"
}

# guess COMMAND...: a part of the bench, whose rows go to the table of guesses.
guess() {
  local small=()
  if [ "$mode" = compile ]; then small=(--size tiny --steps 4 --rounds 1); fi
  "$bin/deps/bench-gpu" "${small[@]}" --rows "$guesses" "$@"
}

# As training uses links, and not as tests of several processes on one GPU have to.
links() {
  unset NCCL_SOCKET_IFNAME NCCL_SOCKET_FAMILY NCCL_NET NCCL_IB_DISABLE NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_MNNVL_ENABLE NCCL_NVLS_ENABLE
  unset NCCL_CUMEM_ENABLE NCCL_ALGO NCCL_PROTO NCCL_MIN_CTAS NCCL_MAX_CTAS
  guess links
}

# Attention's forward by wgmma: its tests, its errors beside their bounds, and its speed beside the usual way.
by_wgmma() {
  if ! grep -Eq '"compute_capability": *"?9\.0' "$scratch/devices.json"; then
    echo 'skipped: needs an H100 or H200'
    return
  fi
  PIPEWRIGHT_ATTENTION=wgmma "$@"
}

# With weight gradients on a stream of their own, which is off by default.
with_gradients_beside() {
  PIPEWRIGHT_BACKWARD_WEIGHT=beside "$@"
}

# What two processes on one GPU get through with: sockets and few blocks. That each is a host of its own to NCCL, which refuses two ranks on
# one GPU of one host, tests say themselves.
export NCCL_SOCKET_IFNAME="=lo" NCCL_SOCKET_FAMILY=AF_INET NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
export NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_CUMEM_ENABLE=0 NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MIN_CTAS=1 NCCL_MAX_CTAS=2
# Its words go aside: by itself it prints between what processes print.
export NCCL_RAS_ENABLE=0 NCCL_DEBUG=WARN NCCL_DEBUG_FILE=$scratch/said.nccl.%p

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
  local said=$scratch/said.by_the_first
  train 0 >/dev/null 2>"$said" &
  local first=$!
  train 1 &
  local second=$!
  until [ -s "$scratch/killed/metrics.jsonl" ]; do
    kill -0 "$first" "$second" || return 1
    sleep 0.2
  done
  kill -9 "$second"
  local at=$SECONDS
  wait "$first"
  local code=$?
  echo "process 0 ended with $code after $((SECONDS - at)) s: $(tail -1 "$said")"
  [ "$code" -ne 0 ] && [ $((SECONDS - at)) -le 30 ] && grep -q 'process 1' "$said"
}

# What a step should take by the costs of its layers, and what it takes: the last line has both.
predicted() {
  local sets=(--set model.dim=512 --set model.heads=8 --set data.seq=512 --set pipeline.stages=1)
  sets+=(--set pipeline.devices=cuda:0 --set pipeline.dtype=bf16 --set train.validate_every=0 --set checkpoint.every=0)
  "$bin/pipewright" profile examples/gpt-text.toml "${sets[@]}" --out "$scratch/costs.json" &&
    "$bin/pipewright" train examples/gpt-text.toml --steps 20 --run-dir "$scratch/predicted" "${sets[@]}" \
      --set "pipeline.costs=$scratch/costs.json"
}

# sanitize TEST MODULE, then the tool and its options: the tests of a module, or with an empty name all tests
sanitize() {
  local test=$1 module=$2 code found='^=+ .*(Invalid|Misaligned|Race reported|hazard)'
  shift 2
  command -v compute-sanitizer >/dev/null || { echo 'skipped: there is no compute-sanitizer on the PATH'; return; }
  # In the foreground: in the process group of the part.
  timeout --foreground -k 2 $((limit - 5)) compute-sanitizer "$@" --error-exitcode 9 "$bin/deps/test-$test" ${module:+"$module::"} --test-threads 1
  code=$?
  [ "$code" -eq 124 ] || return "$code"
  if grep -Eq "$found" "$scratch/log"; then return 9; fi
  if [ "$limit" -lt "$seconds" ]; then return 124; fi
  echo "skipped: not through in $((limit - 5)) s, nothing found until then"
}

# benchmark ROUNDS
benchmark() {
  if ! LD_LIBRARY_PATH=$PEER_LIBRARY_PATH "$PYTHON" -c 'import torch, safetensors; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "skipped: no PyTorch to compare with: $PYTHON has none with a GPU and safetensors (PYTHON=...)"
    return
  fi
  # In the place of this shell, so that it has a moment to print its table when the time is up.
  exec "$PYTHON" benches/gpu/compare.py --python "$PYTHON" --peer-library-path "$PEER_LIBRARY_PATH" --binary "$bin/deps/bench-gpu" \
    --rounds "$1" --seconds $((limit - SECONDS)) --rows "$guesses"
}

# ResNet-18 beside PyTorch. resnet FORMAT
resnet() {
  if ! LD_LIBRARY_PATH=$PEER_LIBRARY_PATH "$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "skipped: no PyTorch with a GPU: PYTHON=..."
    return
  fi
  "$PYTHON" benches/compare_torch/resnet.py "$bin/pipewright" --device cuda:0 --dtype "$1" --steps 30 --rounds 2 \
    --peer-library-path "$PEER_LIBRARY_PATH"
}

# Llama-3.2-1B's and Qwen3-0.6B's sizes beside transformers.
llama() {
  if ! LD_LIBRARY_PATH=$PEER_LIBRARY_PATH "$PYTHON" -c 'import torch, transformers; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "skipped: no transformers to compare with: $PYTHON has none with a GPU (PYTHON=...)"
    return
  fi
  "$PYTHON" benches/gpu/llama.py "$bin/pipewright" --rounds 1 --seconds $((limit - 15)) --peer-library-path "$PEER_LIBRARY_PATH"
}

guesses_on_a_gpu() {
  part 'kernels are compiled, or were' 120 "$bin/deps/test-cuda_layers" attention_gives_the_same_bits
  part 'guesses: training' 120 guess train
  part 'guesses: training, backward-weight beside' 60 with_gradients_beside guess train --stages 1
  part 'guesses: kernels' 90 guess kernels
  part 'guesses: launches' 30 guess launches
  part 'guesses: functions of CUDA' 30 guess functions
  part 'guesses: copies and sends' 60 links
  part 'guesses: training beside PyTorch' 300 benchmark "$([ "$only" = bench ] && echo 3 || echo 2)"
}

tests_on_a_gpu() {
  run_tests 60 "${TESTS[@]}"
  part 'of two processes by NCCL one is killed' 60 killed
}

more_on_a_gpu() {
  part 'a step as predicted by measured costs' 60 predicted
  part 'benchmark: Llama and Qwen3 beside transformers' 300 llama
  part 'benchmark: ResNet-18 in f32' 90 resnet f32
  part 'benchmark: ResNet-18 in bf16' 90 resnet bf16
}

sanitize_on_a_gpu() {
  # Libraries try functions that a driver may lack, so what CUDA's functions answer is no error.
  local memory=(--tool memcheck --report-api-errors no)
  part 'compute-sanitizer, memory: attention' 160 sanitize cuda_layers attention "${memory[@]}"
  part 'compute-sanitizer, races: attention' 160 sanitize cuda_layers attention --tool racecheck
  part 'compute-sanitizer, memory: kernels' 200 sanitize cuda_kernels '' "${memory[@]}"
}

attention_on_a_gpu() {
  part 'attention by wgmma: tests' 90 by_wgmma "$bin/deps/test-cuda_layers" attention apart::attention hopper
  part 'attention by wgmma: bounds' 60 by_wgmma "$bin/deps/test-cuda_kernels" half::all::attention --nocapture
  part 'attention by mma.sync' 90 guess attention --keep "$scratch/sample"
  part 'attention by wgmma' 90 by_wgmma guess attention --beside "$scratch/sample"
  part 'attention by wgmma: training' 60 by_wgmma guess train --stages 1
  local memory=(--tool memcheck --report-api-errors no)
  part 'compute-sanitizer, memory: wgmma' 120 by_wgmma sanitize cuda_layers hopper "${memory[@]}"
}

on_a_gpu() {
  timeout -k 5 60 "$bin/pipewright" devices
  if ! grep -q '"cuda:0"' "$scratch/devices.json"; then
    echo 'no GPU: try --compile-only' >&2
    exit 1
  fi
  # Tests do not fall back on the emulator.
  export PIPEWRIGHT_TEST_GPU=1
  # A GPU is in two communicators of NCCL at once there: for wires, and for the sums of replicas.
  if [ -z "$only" ] && grep -q '"cuda:1"' "$scratch/devices.json"; then
    part 'replicas of stages on several GPUs' 180 "$bin/deps/test-processes" gpus::replicas_on --test-threads=1 --nocapture
  fi
  local one parts=${only:-guesses tests more sanitize}
  if [ "$only" = bench ]; then parts='guesses more'; fi
  for one in $parts; do "${one}_on_a_gpu"; done
}

on_the_emulator() {
  run_tests 1200 "${EMULATOR_TESTS[@]}" "${TESTS[@]}"
  local emulator
  emulator=$(ls -td "$target"/tmp/emulator/*/ 2>/dev/null | head -1)
  if [ -n "$emulator" ]; then
    export LD_LIBRARY_PATH=${emulator%/}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    local command
    for command in 'train --stages 1 2' kernels attention launches functions 'peer 441000'; do
      # Its words are separate arguments.
      # shellcheck disable=SC2086
      part "the bench runs: $command" 300 guess $command
    done
    part 'the bench runs: links' 300 links
    part 'the bench runs: backward-weight beside' 300 with_gradients_beside guess train --stages 1
    part 'of two processes by NCCL one is killed' 120 killed
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
export -f train killed predicted sanitize benchmark resnet llama guess links by_wgmma with_gradients_beside
SECONDS=0
find_libraries
if [ "$mode" = compile ]; then on_the_emulator; else on_a_gpu; fi
finish
