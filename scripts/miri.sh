#!/usr/bin/env bash
# Runs under Miri what shares memory among threads and can run there: the pools of buffers and the queue by which
# buffers come home, tensors that share memory and outlive their threads (in 8 orders of threads each).
# Not covered: the threads of a rank (crossbeam-epoch, which rayon uses, breaks Stacked Borrows, and Miri stops there),
# most of SIMD, calls of the system (shared memory: tests/interleavings has its protocol), CUDA, MPI.
# Needs: rustup component add --toolchain nightly miri rust-src
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=target/miri
MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-many-seeds=0..8' \
  cargo +nightly miri test -p pipewright-stages --test pool
