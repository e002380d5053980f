#!/usr/bin/env bash
# Damages everything that is read, at random, for MINUTES minutes a target. Usage: scripts/fuzz.sh [TARGET [MINUTES]]
# TARGET: a part of a name in tests/fuzz, such as `gguf`; all of them if it is missing or `all`.
# The seed is the time, or PIPEWRIGHT_FUZZ_SEED. A run ends at the first input that fails and says where it is.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-all}
if [ "$target" = all ]; then target=; fi
export PIPEWRIGHT_FUZZ_MINUTES=${2:-10} PIPEWRIGHT_FUZZ_SEED=${PIPEWRIGHT_FUZZ_SEED:-$(date +%s)}
cargo test --features parquet --test fuzz --no-run
nice cargo test --quiet --features parquet --test fuzz -- --nocapture --test-threads=1 "$target"
