#!/usr/bin/env python3
"""Causal attention of PyTorch by each of its ways: operations a second, forward and backward.

    python3 benches/gpu/attention_peers.py [--device cuda] [--rounds 5]

One line for each size and way: batch x tokens, query and key heads x width; then forward and backward in milliseconds, and
in TFLOP/s of what is useful (the masked half is not counted; two products forward, five backward). The median of the
rounds counts. A way that cannot run says why. Backward adds in no fixed order, unless `deterministic` is said.
`cargo bench --bench gpu -- kernels attention` measures ours.
"""
import argparse
import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

# Batch, tokens, query heads, key heads, width: GPT-2, and Llama-3.2-1B's heads with 2k and 8k tokens; and heads of 128.
SIZES = [(16, 1024, 12, 12, 64), (8, 2048, 32, 8, 64), (2, 8192, 32, 8, 64), (2, 8192, 32, 8, 128)]
TINY = [(1, 32, 2, 1, 64)]
WAYS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def tensors(size, device):
    batch, time_, query, key, width = size
    generator = torch.Generator(device).manual_seed(1)

    def draw(heads):
        numbers = torch.randn(batch, heads, time_, width, device=device, dtype=torch.bfloat16, generator=generator)
        return numbers.requires_grad_()

    return draw(query), draw(key), draw(key), torch.randn_like(draw(query))


def timed(device, work):
    """Seconds of this work."""
    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def measure(size, way, device, rounds):
    q, k, v, grad = tensors(size, device)
    grouped = size[2] != size[3]
    passes = {"forward": [], "backward": []}
    with sdpa_kernel(way):
        for round_ in range(rounds + 1):
            kept = []
            forward = timed(device, lambda: kept.append(
                scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)))
            backward = timed(device, lambda: torch.autograd.grad(kept[0], (q, k, v), grad))
            # The first round chooses kernels.
            if round_ > 0:
                passes["forward"].append(forward)
                passes["backward"].append(backward)
    return {name: statistics.median(seconds) for name, seconds in passes.items()}


def line(size, way, seconds):
    batch, time_, query, key, width = size
    product = 2 * batch * query * width * time_ * time_ / 2
    rates = [products * product / seconds[name] / 1e12 for name, products in (("forward", 2), ("backward", 5))]
    milliseconds = [1e3 * seconds[name] for name in ("forward", "backward")]
    name = f"{batch} x {time_}, {query}/{key} heads of {width}"
    return (f"{name:<32}{way.name.lower():<22}{milliseconds[0]:>9.3f}{rates[0]:>9.1f}"
            f"{milliseconds[1]:>9.3f}{rates[1]:>9.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="one small size, to try the program without a GPU")
    given = parser.parse_args()
    device = torch.device(given.device)
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"PyTorch {torch.__version__}, {card}")
    print(f"{'size':<32}{'way':<22}{'fwd ms':>9}{'TFLOP/s':>9}{'bwd ms':>9}{'TFLOP/s':>9}")
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        print("deterministic:" if deterministic else "in any order:")
        for size in TINY if given.tiny else SIZES:
            for way in WAYS:
                try:
                    print(line(size, way, measure(size, way, device, given.rounds)), flush=True)
                except RuntimeError as error:
                    print(f"{str(size):<32}{way.name.lower():<22}{str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
