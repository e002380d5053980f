#!/usr/bin/env python3
"""Pipewright against torch.distributed.pipelining on the same model, batch and schedule, in turn on the same machine.

    python3 benches/vs_torch.py --peer torch_pipeline.py --python venv/bin/python

Model: GPT of 8 layers, dim 256, 8 heads, context 128, vocabulary 256; 2 stages, one thread each; 8 micro-batches of 4 rows.
The peer prints one JSON line with `tokens_per_s` and `peak_rss_mb` per process. Ours comes from metrics.jsonl and from the
resources the operating system counted for the process. Each round runs both sides, so that a busy machine hurts both.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    env = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default=env("PIPEWRIGHT_PEER"), help="script of the peer (or $PIPEWRIGHT_PEER)")
    parser.add_argument(
        "--python", default=env("PIPEWRIGHT_PEER_PYTHON", sys.executable), help="(or $PIPEWRIGHT_PEER_PYTHON)"
    )
    parser.add_argument("--binary", default=ROOT / "target/release/pipewright")
    parser.add_argument("--data", help="one text file for both sides; default: the guide")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a run")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--schedules", nargs="+", default=["1F1B", "GPipe"])
    given = parser.parse_args()
    if not given.peer:
        parser.error("name the peer's script with --peer or $PIPEWRIGHT_PEER")
    return given


def theirs(given, schedule, data):
    """Tokens per second and MiB of resident memory summed over ranks."""
    command = [given.python, given.peer, "--schedule", schedule, "--data", data]
    command += ["--steps", str(given.steps), "--warmup", str(given.warmup)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output.strip().splitlines()[-1])
    return result["tokens_per_s"], sum(result["peak_rss_mb"]), result["peer"]


def ours(given, schedule, data, folder):
    """Tokens per second and MiB of resident memory of the one process."""
    run = pathlib.Path(folder) / "run"
    command = [str(given.binary), "train", str(ROOT / "benches/vs_torch.toml"), "--run-dir", str(run)]
    command += ["--set", f"pipeline.schedule={schedule.lower()}", "--set", f"data.path={data}"]
    command += ["--set", f"train.steps={given.warmup + given.steps}"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: failed")
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = [step["tokens_per_second"] for step in steps if "tokens_per_second" in step]
    return statistics.median(rates[given.warmup :]), used.ru_maxrss / 1024


def pair(given, schedule, data):
    print(f"\n{schedule}\nround   ours tok/s  theirs tok/s   ratio   ours MiB  theirs MiB")
    rows = []
    for number in range(1, given.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            speed, memory = ours(given, schedule, data, folder)
        peer_speed, peer_memory, peer = theirs(given, schedule, data)
        rows.append((speed, peer_speed, speed / peer_speed, memory, peer_memory))
        print_row(number, rows[-1])
    middle = [statistics.median(column) for column in zip(*rows)]
    print_row("median", middle)
    print(f"{peer}: {middle[2]:.2f} x its tokens/s, {100 * middle[3] / middle[4]:.0f} % of its resident memory")


def print_row(name, row):
    print(f"{name:>6} {row[0]:>12.0f} {row[1]:>13.0f} {row[2]:>7.2f} {row[3]:>10.0f} {row[4]:>11.0f}", flush=True)


def main():
    given = arguments()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    with tempfile.NamedTemporaryFile(suffix=".txt") as text:
        for page in sorted((ROOT / "book/src").glob("*.md")):
            text.write(page.read_bytes())
        text.flush()
        for schedule in given.schedules:
            pair(given, schedule, os.path.abspath(given.data or text.name))


if __name__ == "__main__":
    main()
