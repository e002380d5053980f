#!/usr/bin/env bash
# Runs under Miri what shares memory among threads and can run there: the pools of buffers and the queue by which
# buffers come home (in 8 orders of threads each), and tensors that share memory or are kept in 16 bits.
# Not covered: calls of the system (shared memory: tests/interleavings has its protocol), CUDA, MPI, and kernels, for
# which Miri is too slow. Needs: rustup component add --toolchain nightly miri rust-src
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=target/miri
MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-many-seeds=0..8' \
  cargo +nightly miri test -p pipewright-stages --test pool
MIRIFLAGS=-Zmiri-disable-isolation \
  cargo +nightly miri test -p pipewright-stages --test held_halves --test identity --test heads
