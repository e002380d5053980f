#!/usr/bin/env python3
"""Training of SmolLM2-135M: ours in 2 stages, `transformers` in one process, and in 2 stages of PyTorch's pipelining.

    benches/compare_torch/smollm2.py PIPEWRIGHT MODEL [--rounds 3] [--steps 6]

Needs torch and transformers, in the Python that runs this. PIPEWRIGHT is the program, compiled with optimisation. MODEL
is the folder that `pipewright import` makes of SmolLM2, as the guide shows. A step is 4 micro-batches of 1 x 256 tokens,
in f32, with AdamW. All three run in turn, with two threads in all. The second stage of PyTorch's pipelining has a table
of its own, because it cannot tie tensors of two stages, so it learns something else at the same cost. Prints tokens a
second, the median of the steps after the first two, and the largest resident memory of all processes together.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MICRO_BATCHES, TOKENS = 4, 256
CONFIG = """
[model]
path = {model}
[data]
kind = "text"
path = "builtin:shakespeare"
seq = {tokens}
[pipeline]
stages = 2
schedule = "1f1b"
micro_batches = {micro_batches}
micro_batch_size = 1
[optimizer]
learning_rate = 5e-5
weight_decay = 0.01
[train]
name = "timed"
validate_every = 0
[checkpoint]
beside = false
"""


def batch(model, vocabulary):
    """Tokens and targets of one micro-batch each."""
    import torch

    drawn = torch.Generator().manual_seed(1)
    tokens = torch.randint(vocabulary, (MICRO_BATCHES, TOKENS + 1), generator=drawn)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def told(seconds):
    """What a worker prints: seconds of each step, and its largest resident memory in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak}), flush=True)


def loss_of(logits, targets):
    import torch

    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load(model):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")


def one_process(model, steps):
    """One process with two threads: transformers' best on two cores."""
    import torch

    torch.set_num_threads(2)
    module = load(model)
    update = torch.optim.AdamW(module.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    inputs, targets = batch(model, module.config.vocab_size)
    seconds = []
    for _ in range(steps):
        since = time.perf_counter()
        for input, target in zip(inputs, targets):
            (loss_of(module(input[None]).logits, target[None]) / MICRO_BATCHES).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        update.step()
        update.zero_grad()
        seconds.append(time.perf_counter() - since)
    told(seconds)


def one_stage(model, steps):
    """One of two processes of PyTorch's pipelining, with one thread."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    class Stage(torch.nn.Module):
        """The first or the second half of the blocks, with what is before or after them."""

        def __init__(self, whole, rank):
            super().__init__()
            half = len(whole.model.layers) // 2
            self.rank = rank
            self.table = whole.model.embed_tokens if rank == 0 else None
            self.blocks = torch.nn.ModuleList(whole.model.layers[:half] if rank == 0 else whole.model.layers[half:])
            self.rotary = whole.model.rotary_emb
            self.norm, self.head = (whole.model.norm, whole.lm_head) if rank == 1 else (None, None)

        def forward(self, input):
            hidden = self.table(input) if self.rank == 0 else input
            place = torch.arange(hidden.shape[1])[None]
            turned = self.rotary(hidden, place)
            for block in self.blocks:
                hidden = block(hidden, position_embeddings=turned, position_ids=place)
                hidden = hidden[0] if isinstance(hidden, tuple) else hidden
            return self.head(self.norm(hidden)) if self.rank == 1 else hidden

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    whole = load(model)
    inputs, targets = batch(model, whole.config.vocab_size)
    module = Stage(whole, rank)
    del whole
    schedule = Schedule1F1B(PipelineStage(module, rank, 2, torch.device("cpu")), MICRO_BATCHES, loss_fn=loss_of)
    update = torch.optim.AdamW(module.parameters(), lr=5e-5, weight_decay=0.01, fused=True)
    seconds = []
    for _ in range(steps):
        since = time.perf_counter()
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        update.step()
        update.zero_grad()
        seconds.append(time.perf_counter() - since)
    told(seconds)
    dist.destroy_process_group()


def theirs(way, given):
    own = [__file__, str(given.program), str(given.model), "--steps", str(given.steps), "--way", way]
    if way == "one_process":
        command = [sys.executable, *own]
    else:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*launcher, *own]
    said = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    if said.returncode or not lines:
        sys.exit(said.stdout + said.stderr)
    return statistics.median(lines[0]["seconds"][2:]), sum(line["peak"] for line in lines)


def ours(given):
    with tempfile.TemporaryDirectory() as folder:
        config = CONFIG.format(model=json.dumps(str(given.model)), tokens=TOKENS, micro_batches=MICRO_BATCHES)
        Path(folder, "my.toml").write_text(config)
        command = [given.program, "train", "my.toml", "--steps", str(given.steps), "--run-dir", "run"]
        running = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, status, used = os.wait4(running.pid, 0)
        if status:
            sys.exit(running.stderr.read().decode())
        lines = Path(folder, "run/metrics.jsonl").read_text().splitlines()
        return statistics.median(json.loads(line)["seconds"] for line in lines[2:]), used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--way", choices=["one_process", "one_stage"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.program, given.model = given.program.resolve(), given.model.resolve()
    if given.way:
        return globals()[given.way](given.model, given.steps)
    ways = {
        "pipewright, 2 stages": lambda: ours(given),
        "transformers, 1 process": lambda: theirs("one_process", given),
        "transformers, 2 stages": lambda: theirs("one_stage", given),
    }
    rates, peaks = {way: [] for way in ways}, {way: [] for way in ways}
    for _ in range(given.rounds):
        for way, run in ways.items():
            seconds, peak = run()
            rates[way].append(MICRO_BATCHES * TOKENS / seconds)
            peaks[way].append(peak)
    print(f"{'':26}{'tokens a second':>34}{'MiB':>8}")
    for way in ways:
        all_rates = ", ".join(f"{rate:.0f}" for rate in sorted(rates[way]))
        print(f"{way:26}{statistics.median(rates[way]):>8.0f} ({all_rates}){max(peaks[way]):>14.0f}")


if __name__ == "__main__":
    main()
