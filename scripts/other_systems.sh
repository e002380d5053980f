#!/usr/bin/env bash
# Whether the library and the command compile for macOS and Windows. Nothing is linked and nothing runs.
# Crates with C code call a compiler for these systems. A check looks at no object, so here an empty file is enough.
# The sources of the standard library are only compiled where rustup has none for these targets: they come from
# Debian's package of the same version of Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(aarch64-apple-darwin x86_64-pc-windows-gnu)
export CARGO_TARGET_DIR=$PWD/target/systems
mkdir -p "$CARGO_TARGET_DIR"

no_c=$CARGO_TARGET_DIR/no_c
cat > "$no_c" << 'END'
#!/bin/sh
# In the place of a C compiler and an archiver: makes an empty file.
while [ $# -gt 0 ]; do
  case "$1" in -o) : > "$2"; shift ;; *.a) : > "$1" ;; esac
  shift
done
END
chmod +x "$no_c"
# Without it, crates look for Apple's tools.
export SDKROOT=/

cargo_args=()
for target in "${targets[@]}"; do
  cargo_args+=(--target "$target")
  name=${target//-/_}
  export "CC_$name=$no_c" "CXX_$name=$no_c" "AR_$name=$no_c"
done

# Fetches the standard library's sources from Debian.
debian_sources() {
  local debian=http://deb.debian.org/debian version package place=$CARGO_TARGET_DIR/rust-src
  version=$(rustc --version | cut -d ' ' -f 2)
  sources=$place/usr/src/rustc-$version/library
  [ ! -d "$sources" ] || return 0
  for suite in trixie-backports sid; do
    package=$(curl -sSf "$debian/dists/$suite/main/binary-all/Packages.xz" | xz -dc |
      sed -n "s|^Filename: \(.*/rust-src_$version[+]dfsg.*\.deb\)$|\1|p" | tail -n 1)
    [ -n "$package" ] || continue
    curl -sSf "$debian/$package" -o "$place.deb"
    dpkg-deb -x "$place.deb" "$place"
    return
  done
  echo "neither rustup nor Debian has the standard library of Rust $version for ${targets[*]}" >&2
  exit 1
}

if ! rustup target add "${targets[@]}"; then
  debian_sources
  # Cargo's own tests name the sources by this variable. So the toolchain stays as it is.
  export __CARGO_TESTS_ONLY_SRC_ROOT=$sources RUSTC_BOOTSTRAP=1
  cargo_args+=(-Z build-std)
fi
cargo check --workspace "${cargo_args[@]}"
