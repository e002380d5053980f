#!/usr/bin/env python3
"""Wires and sums in fewer bits over slow links: what they save, and what they do to the loss.

    cargo build --release && python3 benches/short_wires.py links     about five minutes; needs root for namespaces
    cargo build --release && python3 benches/short_wires.py losses    500 steps of each format, in one process

`links`: two hosts, which are network namespaces of this machine with a core each, and a link of 100 Mbit/s between them. A GPT of size
A's width is cut into a stage on each, or is on each as a replica. For each format the script prints the median step, the
bytes that a host sends in a step, and the step that `plan` predicts. The weights of two hosts and of one process have to
be the same.
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
sys.path.insert(0, str(ROOT / "scripts"))
from hosts import Hosts  # noqa: E402

BINARY = ROOT / "target/release/pipewright"
CONFIG = f"""
[model]
kind = "gpt"
dim = 256
heads = 8
layers = {{layers}}
[data]
kind = "text"
path = "builtin:shakespeare"
seq = 128
[pipeline]
gradient_groups = 2
micro_batches = {{micro_batches}}
micro_batch_size = 4
[optimizer]
learning_rate = 1e-3
schedule = "cosine"
warmup_steps = 50
clip = 1.0
[train]
validate_every = 0
[checkpoint]
every = 0
"""
WARM_UP, STEPS = 2, 12
# What is trained: how the two hosts divide the work, and the formats.
STAGES = ["pipeline.stages=2"], [("f32", "wires"), ("bf16", "wires"), ("8bit", "wires")]
REPLICAS = ["pipeline.stages=1", "pipeline.replicas=2"], [("f32", "sums"), ("bf16", "sums")]


def sets(keys):
    return [word for key in keys for word in ("--set", key)]


def sent(hosts, number):
    words = subprocess.run(["ip", "-n", hosts.name(number), "-s", "-j", "link", "show", "eth0"], check=True, capture_output=True)
    return json.loads(words.stdout)[0]["stats64"]["tx"]["bytes"]


class Two:
    """Runs on two hosts."""

    def __init__(self, hosts, scratch):
        self.hosts, self.scratch, self.port = hosts, scratch, 21000

    def run(self, *arguments):
        self.port += 1
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": self.hosts.address(1), "MASTER_PORT": str(self.port), "PIPEWRIGHT_TOKEN": "t" * 32}
        processes = []
        for number in (1, 2):
            # A core for each, as hosts have. With both on all cores, each takes the other's time.
            core = ["taskset", "--cpu-list", str(number - 1)]
            command = ["ip", "netns", "exec", self.hosts.name(number), *core, str(BINARY), *arguments]
            environment = os.environ | place | {"RANK": str(number - 1)}
            processes.append(subprocess.Popen(command, cwd=self.scratch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        said = [process.communicate(timeout=600)[0] for process in processes]
        if any(process.returncode for process in processes):
            sys.exit("".join(said))
        return said[0]

    def alone(self, *arguments):
        done = subprocess.run([str(BINARY), *arguments], cwd=self.scratch, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return done.stdout


def weights(said):
    return next(line.split()[1] for line in said.splitlines() if line.startswith("weights "))


def links(rate):
    with Hosts(2) as hosts, tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        (scratch / "c.toml").write_text(CONFIG.format(layers=4, micro_batches=8))
        hosts.links(rate)
        two = Two(hosts, scratch)
        print(f"{'':24} step (ms)   predicted   MB sent by host 1   weights")
        for mesh, formats in (STAGES, REPLICAS):
            two.run("profile", "c.toml", *sets(mesh), "--out", "costs.json")
            for value, key in formats:
                keys = sets([*mesh, f"pipeline.{key}={value}"])
                costs = sets(["pipeline.costs=costs.json"])
                plan = two.alone("plan", "c.toml", *keys, *costs, "--hosts", "2", "--format", "json")
                predicted = json.loads(plan[plan.index("{"):])["step_with_barrier"]
                steps, bytes_of = [], []
                for count in (1, STEPS):
                    before = sent(hosts, 1)
                    said = two.run("train", "c.toml", *keys, "--steps", str(count), "--run-dir", f"{value}{count}", "--weights-hash")
                    bytes_of.append(sent(hosts, 1) - before)
                    lines = (scratch / f"{value}{count}" / "metrics.jsonl").read_text().splitlines()
                    steps = [json.loads(line)["seconds"] for line in lines]
                    subprocess.run(["rm", "-r", f"{value}{count}"], cwd=scratch, check=True)
                one = sets(["pipeline.stages=1", "pipeline.replicas=1", f"pipeline.{key}={value}"])
                alone = two.alone("train", "c.toml", *one, "--steps", str(STEPS), "--run-dir", "alone", "--weights-hash")
                subprocess.run(["rm", "-r", "alone"], cwd=scratch, check=True)
                same = "as one process" if weights(alone) == weights(said) else "DIFFER FROM ONE PROCESS"
                step = statistics.median(steps[WARM_UP:])
                megabytes = (bytes_of[1] - bytes_of[0]) / (STEPS - 1) / 1e6
                print(f"{' '.join(mesh)[:14]:14} {key:5} {value:4} {1e3 * step:8.0f} {1e3 * predicted:11.0f} {megabytes:14.2f}         {same}", flush=True)


def losses(steps):
    print("format            validation loss   mean loss of the last 50 steps")
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        (scratch / "c.toml").write_text(CONFIG.format(layers=8, micro_batches=2).replace("validate_every = 0", f"validate_every = {steps}"))
        for key in ("wires=f32", "wires=bf16", "wires=8bit", "sums=bf16"):
            command = [str(BINARY), "train", "c.toml", *sets(["pipeline.stages=1", f"pipeline.{key}"]), "--steps", str(steps), "--run-dir", key]
            subprocess.run(command, cwd=scratch, check=True, capture_output=True)
            lines = [json.loads(line) for line in (scratch / key / "metrics.jsonl").read_text().splitlines()]
            validation = [line["validation_loss"] for line in lines if line.get("validation_loss") is not None]
            mean = statistics.mean(line["loss"] for line in lines[-50:])
            print(f"{key:16} {validation[-1] if validation else float('nan'):16.4f} {mean:16.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["links", "losses"])
    parser.add_argument("--rate", type=int, default=100, help="Mbit/s of the link")
    parser.add_argument("--steps", type=int, default=500, help="of each run of `losses`")
    given = parser.parse_args()
    if given.what == "losses":
        return losses(given.steps)
    if os.geteuid() != 0:
        sys.exit("two hosts need root")
    return links(given.rate)


if __name__ == "__main__":
    main()
