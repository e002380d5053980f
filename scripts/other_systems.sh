#!/usr/bin/env bash
# Whether the library and the command compile for macOS, Windows, and Linux on 64-bit Arm. Nothing is linked, and
# nothing runs.
# The emulator of CUDA stays out: it is for tests, and these run on Linux only.
# Crates with C code call tools of these targets. A check looks at no object, so here an empty file is enough.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(aarch64-apple-darwin x86_64-pc-windows-gnu aarch64-unknown-linux-gnu)

no_c=$PWD/target/no_c
mkdir -p target
cat > "$no_c" << 'END'
#!/bin/sh
# In the place of a C compiler, an archiver and dlltool: makes an empty file.
while [ $# -gt 0 ]; do
  case "$1" in -o | -l) : > "$2"; shift ;; *.a) : > "$1" ;; esac
  shift
done
END
chmod +x "$no_c"
# Without it, crates look for Apple's tools.
export SDKROOT=/
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS="-C dlltool=$no_c"

rustup target add "${targets[@]}"
for target in "${targets[@]}"; do
  name=${target//-/_}
  export "CC_$name=$no_c" "CXX_$name=$no_c" "AR_$name=$no_c"
  cargo check --workspace --exclude pipewright-emulator --target "$target"
done
