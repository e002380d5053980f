#!/usr/bin/env bash
# Runs under ThreadSanitizer what threads share in `stages`: the pools of buffers and the queue by which buffers come
# home, and a rank's threads in its kernels. It compiles for minutes and runs for seconds.
# Not covered: the engine; memory that processes share (tests/interleavings has its protocol), CUDA, MPI.
# Needs: rustup toolchain install nightly --component rust-src
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=target/tsan RUSTFLAGS=-Zsanitizer=thread TSAN_OPTIONS=halt_on_error=1
cargo +nightly test -Zbuild-std --target "$target" -p pipewright-stages --test pool --test threads
