#!/usr/bin/env bash
# Draws the timelines of the guide again: runs each command `$ pipewright plan ... > NAME.svg` of its pages and of the README,
# and leaves what it prints in book/src/img/NAME.svg. tests/guide.rs holds the pictures to these commands.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet

sed -n 's/^\$ pipewright \(plan .*\) > \([a-z0-9-]*\.svg\)$/\2 \1/p' book/src/*.md README.md | sort -u |
  while read -r name arguments; do
    # Unquoted: the words of a command line.
    target/debug/pipewright $arguments > "book/src/img/$name"
    echo "book/src/img/$name"
  done
