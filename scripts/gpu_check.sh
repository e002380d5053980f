#!/usr/bin/env bash
# What has to hold on a GPU, and how fast it is there, in one command of under 9 minutes; ends with a table and with 1 when a part failed.
#
#   scripts/gpu_check.sh                   build, then check
#   scripts/gpu_check.sh --build DIR       build only, into DIR: for a machine that has no cargo
#   scripts/gpu_check.sh --binaries DIR    check with what --build made
#   scripts/gpu_check.sh --compile-only    what a machine without a GPU can show: kernels compile, and all tests on the emulator
#
# CUDA's libraries are looked for where pip puts them. PYTHON is the Python with torch and safetensors (python3), which PyTorch's side needs.
set -uo pipefail
cd "$(dirname "$0")/.."

LIMIT=520
PYTHON=${PYTHON:-python3}
compile_only=false build_only=false bin=
while [ $# -gt 0 ]; do
  case $1 in
    --compile-only) compile_only=true ;;
    --build | --binaries)
      [ $# -gt 1 ] || { echo "$1 needs a folder" >&2; exit 2; }
      if [ "$1" = --build ]; then build_only=true; fi
      bin=$2
      shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

# Package and test of everything that uses a GPU.
TESTS=()
BENCH=gpu

rows=()
failed=0
logs=$(mktemp -d)
children=()
trap 'kill "${children[@]}" 2>/dev/null; rm -rf "$logs"' EXIT

row() { rows+=("$(printf '%-46s %-8s %5s  %s' "$1" "$2" "$3" "$4")"); }

skip() { row "$1" skipped - "$2"; }

# part NAME SECONDS COMMAND...: runs it under a limit; its output goes to the screen and, for the reason, to a file.
part() {
  local name=$1 limit=$2 started=$SECONDS left log code
  shift 2
  left=$((LIMIT - SECONDS))
  if ! $compile_only && [ "$left" -lt "$limit" ]; then limit=$left; fi
  if [ "$limit" -lt 5 ]; then
    skip "$name" "no time was left"
    return 1
  fi
  log=$logs/${#rows[@]}
  printf '\n== %s (%d s so far)\n' "$name" "$SECONDS"
  timeout -k 5 "$limit" "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  local seconds=$((SECONDS - started)) why
  why=$(grep -m1 -i 'skipped:' "$log")
  case $code in
    0) row "$name" "${why:+part }ok" "$seconds" "$why" ;;
    124 | 137) failed=1; row "$name" FAILED "$seconds" "did not end in $limit s" ;;
    *) failed=1; row "$name" FAILED "$seconds" "$(grep -E 'panicked|error|FAILED|off by' "$log" | head -1 | cut -c -100)" ;;
  esac
  return "$code"
}

table() {
  printf '\n%-46s %-8s %5s  %s\n' part result s reason
  printf '%s\n' "${rows[@]}"
  exit "$failed"
}

# The folder that holds a library of pip's, by the name of its package's folder.
pip_folder() {
  "$PYTHON" - "$1" <<'EOF' 2>/dev/null
import pathlib, sys, sysconfig
folders = [pathlib.Path(sysconfig.get_paths()[name]) / "nvidia" for name in ("purelib", "platlib")]
found = [file.parent for folder in folders for file in sorted(folder.glob(f"*/lib/{sys.argv[1]}"))]
print(found[0] if found else "")
EOF
}

# Puts pip's libraries on the loader's path. NCCL's file has no name that is looked for, so it gets a link.
find_libraries() {
  local folder path=
  for library in libnvrtc.so.13 libcublasLt.so.13 libnccl.so.2; do
    folder=$(pip_folder "$library")
    [ -n "$folder" ] && path=$path:$folder
    if [ "$library" = libnccl.so.2 ] && [ -n "$folder" ]; then
      mkdir -p "$logs/links"
      ln -sf "$folder/$library" "$logs/links/libnccl.so"
      path=$path:$logs/links
    fi
  done
  export LD_LIBRARY_PATH="${path#:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

# Builds the command, the tests of TESTS and the bench into a folder, as cargo lays them out, so that tests find the command.
build() {
  local into=$1
  mkdir -p "$into/deps" &&
    cargo build --release --bin pipewright &&
    cargo build --release --bench "$BENCH" --message-format json >"$logs/built" || return 1
  for test in "${TESTS[@]}"; do
    cargo test --release --no-run --package "${test%/*}" --test "${test#*/}" --message-format json >>"$logs/built" || return 1
  done
  "$PYTHON" - "$logs/built" "$into" <<'EOF' &&
import json, pathlib, shutil, sys
for line in open(sys.argv[1]):
    one = json.loads(line)
    target = one.get("target", {})
    if one.get("executable") and {"test", "bench"} & set(target["kind"]):
        shutil.copy(one["executable"], pathlib.Path(sys.argv[2]) / "deps" / target["name"])
EOF
    cp target/release/pipewright "$into/" &&
    pwd >"$into/built-at"
}

# Tests know their files by the folder they were built in.
stand_in() {
  local built_at
  built_at=$(cat "$bin/built-at") || return 1
  if [ ! -e "$built_at" ]; then
    mkdir -p "$(dirname "$built_at")" && ln -s "$PWD" "$built_at" && echo "$built_at now leads here"
  fi
}
