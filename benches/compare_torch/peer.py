#!/usr/bin/env python3
"""The peer: torch.distributed.pipelining trains the same model on the same batches, one process per rank,
with gloo on the CPU.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
        python peer.py --folder FOLDER --schedule 1F1B --steps 12

FOLDER is what our side prepared. `single` is one process with all --threads that accumulates gradients over
the micro-batches. With --replicas, DistributedDataParallel sums the gradients of the copies of a process
or of a pipeline; each has an equal part of the micro-batches, and ranks are numbered as ours. --zero shards
the optimizer (ZeroRedundancyOptimizer). --shards divides each layer of `single` among that many processes
(parallelize_module, with sequence parallelism and a parallel loss). --autocast computes in bf16 what torch.autocast does, in one context
a step, so a weight is converted once a step. Prints one line of JSON: the seconds of every step on this rank
and, on a rank with the last stage, the mean losses of its micro-batches.
"""
import argparse
import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from safetensors import safe_open


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.is_divided = heads, False
        self.norm, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        qkv = self.qkv(self.norm(x))
        rows, context, width = qkv.shape
        if self.is_divided:  # The queries, keys and values of a head follow each other.
            q, k, v = qkv.view(rows, context, self.heads, 3, -1).permute(3, 0, 2, 1, 4)
        else:
            q, k, v = qkv.view(rows, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.proj(y.transpose(1, 2).reshape(rows, context, width // 3))


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.fc, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.proj(F.gelu(self.fc(self.norm(x)), approximate="tanh"))


class Embed(nn.Module):
    def __init__(self, vocab, context, dim):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.part, self.parts = 0, 1

    def forward(self, ids):
        own = torch.arange(ids.shape[1], device=ids.device).chunk(self.parts)[self.part]
        return self.tokens(ids) + self.positions(own)


class Head(nn.Module):
    def __init__(self, dim, vocab):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, x):
        return self.linear(self.norm(x))


def gpt(vocab, dim, layers, heads, context, tied):
    """The units of our GPT, each with our names of its parameters."""
    units = [Embed(vocab, context, dim)]
    names = [{"tokens": "wte", "positions": "wpe"}]
    for layer in range(layers):
        units += [Attention(dim, heads), FeedForward(dim)]
        attention, mlp = f"h.{layer}.attn", f"h.{layer}.mlp"
        names.append({"norm": f"h.{layer}.ln_1", "qkv": f"{attention}.c_attn", "proj": f"{attention}.c_proj"})
        names.append({"norm": f"h.{layer}.ln_2", "fc": f"{mlp}.c_fc", "proj": f"{mlp}.c_proj"})
    head = Head(dim, vocab)
    if tied:
        head.linear.weight = units[0].tokens.weight
    return units + [head], names + [{"norm": "ln_f", "linear": "wte" if tied else "lm_head"}]


def mlp(sizes):
    """The units of our perceptron, each with our names of its parameters."""
    units, names = [], []
    for index, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        units += [nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs)), nn.ReLU()]
        names += [{"1": f"fc{index}"}, {}]
    return units[:-1], names[:-1]


def load(units, names, path, nudge):
    """Our starting weights, each changed by the fraction `nudge`, up or down. Our GPT stores linear weights as [in, out]."""
    signs = torch.Generator().manual_seed(0)
    with safe_open(path, "pt") as weights, torch.no_grad():
        for unit, ours in zip(units, names):
            for name, parameter in unit.named_parameters():
                module, kind = name.split(".")
                weight = weights.get_tensor(f"{ours[module]}.{kind}")
                is_in_out = kind == "weight" and ".c_" in ours[module]
                parameter.copy_(weight.T if is_in_out else weight)
                parameter.mul_(1 + nudge * torch.randint(0, 2, parameter.shape, generator=signs).mul(2).sub(1))


class Batches:
    """The input and target of each step, with all micro-batches of this rank's replica in one tensor."""

    def __init__(self, path, is_gpt, share):
        self.file, self.is_gpt, self.share = safe_open(path, "pt"), is_gpt, share

    def __call__(self, step):
        x, y = (self.file.get_slice(name)[step : step + 1, self.share].flatten(0, 2) for name in "xy")
        return x.long() if self.is_gpt else x.float() / 255, y.long()


class Replicas:
    """The copies of a pipeline of `ranks` ranks, and this rank's place among them."""

    def __init__(self, count, ranks):
        self.count, self.ranks = count, ranks
        self.replica, self.rank = divmod(int(os.environ.get("RANK", 0)), ranks)

    def share(self, micro_batches):
        own = micro_batches // self.count
        return slice(self.replica * own, (self.replica + 1) * own)

    def connect(self):
        """The ranks of this pipeline, and those with the same stages. All processes make all groups."""
        ranks, count = self.ranks, self.count
        dist.init_process_group("gloo")
        pipelines = [dist.new_group(range(one * ranks, (one + 1) * ranks)) for one in range(count)]
        alike = [dist.new_group(range(rank, ranks * count, ranks)) for rank in range(ranks)]
        return pipelines[self.replica], alike[self.rank]

    def wrap(self, module, group):
        """Sums a module's gradients over the replicas."""
        # As a view of its bucket a gradient takes memory once.
        return DistributedDataParallel(module, process_group=group, gradient_as_bucket_view=True) if self.count > 1 else module


def divide(units, shards):
    """Divides the layers of a GPT among the processes, in PyTorch's usual way."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    mesh = init_device_mesh("cpu", (shards,))
    outputs, inputs = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
    scores = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    embed, head = units[0], units[-1]
    is_tied = head.linear.weight is embed.tokens.weight
    for unit in units:
        match unit:
            case Embed():
                unit.part, unit.parts = mesh.get_local_rank(), shards
                plan = {"tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))}
            case Attention():
                with torch.no_grad():
                    for parameter in unit.qkv.parameters():
                        by_part = parameter.view(3, unit.heads, -1, *parameter.shape[1:])
                        parameter.copy_(by_part.transpose(0, 1).reshape(parameter.shape).clone())
                unit.heads, unit.is_divided = unit.heads // shards, True
                plan = {"norm": SequenceParallel(), "qkv": outputs, "proj": inputs}
            case FeedForward():
                plan = {"norm": SequenceParallel(), "fc": outputs, "proj": inputs}
            case Head():
                plan = {"norm": SequenceParallel(), "linear": scores}
        parallelize_module(unit, mesh, plan)
    if is_tied:
        head.linear.weight = embed.tokens.weight


def divided(given, units, micro_batches, batches):
    """Trains a GPT whose layers are divided."""
    from torch.distributed.tensor.parallel import loss_parallel

    torch.set_num_threads(given.threads)
    dist.init_process_group("gloo")
    divide(units, given.shards)
    model = nn.Sequential(*units)
    positions = units[0].positions.weight
    others = [parameter for parameter in model.parameters() if parameter is not positions]
    # One fused update takes divided parameters, or whole ones.
    update = optimizer([{"params": others}, {"params": [positions]}], False)
    for step in range(given.steps):
        x, y = batches(step)
        dist.barrier()
        started = time.perf_counter()
        update.zero_grad(set_to_none=True)
        losses = []
        with autocast(given), loss_parallel():
            for input, target in zip(x.chunk(micro_batches), y.chunk(micro_batches)):
                loss = loss_of(model(input), target)
                (loss / micro_batches).backward()
                losses.append(loss.detach().full_tensor())
        dist.all_reduce(positions.grad)  # Each process has those of its part of the sequence.
        update.step()
        dist.barrier()
        yield time.perf_counter() - started, losses


def loss_of(output, target):
    return F.cross_entropy(output.reshape(-1, output.shape[-1]).float(), target.reshape(-1))


def autocast(given):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=given.autocast)


def optimizer(parameters, zero):
    settings = dict(lr=3e-4, weight_decay=0.01, fused=True)
    if not zero:
        return torch.optim.AdamW(parameters, **settings)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, **settings)


def single(given, units, micro_batches, batches, replicas):
    torch.set_num_threads(given.threads)
    model = nn.Sequential(*units)
    if replicas.count > 1:
        _, alike = replicas.connect()
        model = replicas.wrap(model, alike)
    barrier = dist.barrier if replicas.count > 1 else lambda: None
    update = optimizer(model.parameters(), given.zero)
    for step in range(given.steps):
        x, y = batches(step)
        barrier()
        started = time.perf_counter()
        update.zero_grad(set_to_none=True)
        losses = []
        with autocast(given):
            for index, (input, target) in enumerate(zip(x.chunk(micro_batches), y.chunk(micro_batches))):
                is_early = replicas.count > 1 and index + 1 < micro_batches
                with model.no_sync() if is_early else contextlib.nullcontext():
                    loss = loss_of(model(input), target)
                    (loss / micro_batches).backward()
                losses.append(loss.detach())
        update.step()
        barrier()
        yield time.perf_counter() - started, losses


def pipeline(given, units, micro_batches, batches, replicas, cut):
    from torch.distributed.pipelining import PipelineStage, schedules

    torch.set_num_threads(1)
    own, alike = replicas.connect()
    rank, ranks, stages = replicas.rank, replicas.ranks, len(cut)
    is_vee = given.schedule in ("ZBVZeroBubble", "DualPipeV")
    mine = [rank, stages - 1 - rank] if is_vee else list(range(rank, stages, ranks))
    ends = [sum(cut[: stage + 1]) for stage in range(stages)]
    modules = [nn.Sequential(*units[ends[stage] - cut[stage] : ends[stage]]) for stage in mine]
    units.clear()  # what other ranks hold takes no memory here
    modules = [replicas.wrap(module, alike) for module in modules]
    parts = [PipelineStage(module, stage, stages, torch.device("cpu"), group=own) for module, stage in zip(modules, mine)]
    parts = parts if stages > ranks else parts[0]
    schedule = getattr(schedules, "Schedule" + given.schedule)(parts, micro_batches, loss_fn=loss_of)
    update = optimizer([parameter for module in modules for parameter in module.parameters()], given.zero)
    for step in range(given.steps):
        x, y = batches(step)
        losses = []
        dist.barrier()
        started = time.perf_counter()
        update.zero_grad(set_to_none=True)
        inputs = (x,) if 0 in mine else ()
        with autocast(given):
            schedule.step(*inputs, **(dict(target=y, losses=losses) if stages - 1 in mine else {}))
        update.step()
        dist.barrier()
        yield time.perf_counter() - started, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--schedule", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True, help="of single")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1, help="divide each layer of `single` among processes")
    parser.add_argument("--zero", action="store_true", help="shard the optimizer over the replicas of `single`")
    parser.add_argument("--autocast", action="store_true", help="compute in bf16 by torch.autocast")
    parser.add_argument("--nudge", type=float, default=0, help="change each starting weight by this fraction, up or down")
    given = parser.parse_args()
    with open(f"{given.folder}/size.json") as file:
        size = json.load(file)
    model, micro_batches = size["model"], size["micro_batches"]
    is_gpt = "vocab" in model
    units, names = gpt(**model) if is_gpt else mlp(**model)
    load(units, names, f"{given.folder}/weights.safetensors", given.nudge)
    if given.shards > 1 and (given.schedule != "single" or given.replicas > 1 or given.zero):
        parser.error("--shards divides a `single` without replicas and without --zero")
    replicas = Replicas(given.replicas, int(os.environ.get("WORLD_SIZE", 1)) // given.replicas)
    batches = Batches(f"{given.folder}/batches.safetensors", is_gpt, replicas.share(micro_batches))
    micro_batches //= given.replicas
    if given.shards > 1:
        steps = divided(given, units, micro_batches, batches)
    elif given.schedule == "single":
        steps = single(given, units, micro_batches, batches, replicas)
    else:
        steps = pipeline(given, units, micro_batches, batches, replicas, size["cuts"][given.schedule])
    seconds, losses = [], []
    for time_of_step, of_step in steps:
        seconds.append(time_of_step)
        losses += [float(torch.stack([loss.detach() for loss in of_step]).mean())] if of_step else []
    if dist.is_initialized():
        dist.destroy_process_group()
    print(json.dumps({"peer": f"PyTorch {torch.__version__}", "seconds": seconds, "losses": losses}))


if __name__ == "__main__":
    main()
