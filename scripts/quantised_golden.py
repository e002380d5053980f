"""Makes tests/golden/quantised.safetensors: blocks of every kind with the numbers that they stand for, by
the packages `gguf` (0.19.0) and `bitsandbytes` (0.50, its code for CPUs) of PyPI. From the root of the repository:

    python3 scripts/quantised_golden.py tests/golden/quantised.safetensors
"""

import sys
import bitsandbytes.functional as bnb
import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.numpy import save_file

random = np.random.default_rng(1)
KINDS = {"F16": [], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
         "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
ROWS, BLOCKS = 3, 2
tensors = {}
for name, scales in KINDS.items():
    kind = gguf.GGMLQuantizationType[name]
    count, size = gguf.GGML_QUANT_SIZES[kind]
    if not scales:
        numbers = random.normal(size=(ROWS, 64)).astype(np.float32)
        if name == "F16":
            blocks = numbers.astype(np.float16).view(np.uint8)
        else:
            blocks = (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        blocks = random.integers(0, 256, size=(ROWS, BLOCKS, size), dtype=np.uint8)
        for at in scales:
            scale = random.normal(size=(ROWS, BLOCKS, 1)).astype(np.float16)
            blocks[:, :, at:at + 2] = scale.view(np.uint8)
        blocks = blocks.reshape(ROWS, BLOCKS * size)
    tensors[f"{name}.blocks"] = blocks
    tensors[f"{name}.numbers"] = dequantize(blocks, kind).astype(np.float32)

# What is rounded, and to what.
numbers = random.normal(size=(4, 192)).astype(np.float32)
numbers[1, :64] = 0
tensors["rounded"] = numbers
q8 = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q8_0)
tensors["Q8_0.rounded"] = q8
packed, state = bnb.quantize_4bit(torch.tensor(numbers), blocksize=64, quant_type="nf4")
tensors["NF4.rounded"] = bnb.dequantize_4bit(packed, state).numpy()
save_file(tensors, sys.argv[1])
