#!/usr/bin/env bash
# Draws the pictures of the guide again. It runs each command `$ pipewright plan ... > NAME.svg` of its pages and of the
# README, and leaves what it prints in book/src/img/NAME.svg. cli/tests/guide/main.rs holds the pictures to these commands.
# The picture of a page needs chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet

sed -n 's/^\$ pipewright \(plan .*\) > \([a-z0-9-]*\.svg\)$/\2 \1/p' book/src/*.md README.md | sort -u |
  while read -r name arguments; do
    # Unquoted: the words of a command line.
    target/debug/pipewright $arguments > "book/src/img/$name"
    echo "book/src/img/$name"
  done

# The page of two runs, as Chromium shows it.
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
small=(--steps 600 --set model.dim=32 --set data.seq=32 --set train.validate_every=50)
target/debug/pipewright train "${small[@]}" --run-dir "$runs/first" > /dev/null
target/debug/pipewright train "${small[@]}" --run-dir "$runs/faster" --set optimizer.learning_rate=0.02 > /dev/null
target/debug/pipewright report "$runs/first" "$runs/faster" --out "$runs/both.html" > /dev/null
chromium --headless --no-sandbox --hide-scrollbars --window-size=1080,1010 \
  --screenshot=book/src/img/report.png "file://$runs/both.html" 2> /dev/null
echo book/src/img/report.png
