"""Sizes that nobody tuned for: GPTs drawn at random."""
import json
import random

# From the least to the most, in steps.
RANGE = {
    "layers": (2, 12, 1),
    "heads": (2, 12, 1),
    "width of a head": (32, 96, 8),
    "context": (32, 512, 16),
    "rows of a micro-batch": (1, 8, 1),
    "micro-batches": (4, 12, 1),
    "vocab": (256, 4096, 128),
}
# The operations of a step. Below, the engine counts as much as the products; above, a round takes minutes.
WORK = (50e9, 700e9)


def in_words():
    """The range, for the help."""
    each = ", ".join(f"{name} {least} to {most}" + (f" in steps of {step}" if step > 1 else "")
                     for name, (least, most, step) in RANGE.items())
    return f"{each}; dim is heads x width; a step of {WORK[0] / 1e9:.0f} to {WORK[1] / 1e9:.0f} billion operations"


def sizes(count, seed):
    """`count` sizes: names and what our binary and `print` call them."""
    draw = random.Random(seed)
    return {f"R{seed}.{index}": json.dumps(one(draw)) for index in range(1, count + 1)}


def one(draw):
    while True:
        layers, heads, width, context, rows, count, vocab = (
            draw.randrange(least, most + 1, step) for least, most, step in RANGE.values())
        dim = heads * width
        of_token = 6 * (12 * layers * dim**2 + dim * vocab) + 6 * layers * dim * (context + 1)
        if WORK[0] <= of_token * rows * context * count <= WORK[1]:
            return {"layers": layers, "dim": dim, "heads": heads, "context": context, "vocab": vocab,
                    "rows": rows, "micro_batches": count}
