#!/usr/bin/env python3
"""Makes small models of random weights with Hugging Face's transformers, and what it computes with them.

    python3 scripts/hf_golden.py tests/golden/hf

Needs torch, transformers and safetensors. Each family gets a folder: the model as transformers saves it, and
golden.safetensors with batches (x, y), logits, gradients of the mean loss, and the losses of 20 steps of AdamW on two
batches in turn, in f32 on the CPU. The folders are kept with the tests; this script makes them again.
"""
import argparse
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

STEPS, BATCHES, ROWS, TIME, VOCAB = 20, 2, 4, 12, 96
SHARED = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, intermediate_size=48, max_position_embeddings=64,
              bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
MODELS = {
    "llama": (transformers.LlamaConfig, dict(SHARED, tie_word_embeddings=True)),
    "llama3": (transformers.LlamaConfig, dict(SHARED, rope_parameters=LLAMA3, num_key_value_heads=1)),
    "mistral": (transformers.MistralConfig, dict(SHARED, sliding_window=5)),
    "qwen2": (transformers.Qwen2Config, dict(SHARED, tie_word_embeddings=True)),
    "qwen3": (transformers.Qwen3Config, dict(SHARED, head_dim=16)),
    "gpt2": (transformers.GPT2Config, dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=24,
                                           resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                           bos_token_id=None, eos_token_id=None)),
}


def make(name, folder):
    kind, settings = MODELS[name]
    torch.manual_seed(sum(name.encode()))
    config = kind(**settings)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start at zero and norms at one: then an error in them would not show.
            parameter.add_(torch.randn_like(parameter) * 0.05)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="30KB" if name == "qwen3" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(VOCAB, (BATCHES, ROWS, TIME + 1)).repeat(STEPS // BATCHES, 1, 1)
    golden = {"x": ids[..., :-1].contiguous(), "y": ids[..., 1:].contiguous()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    losses = []
    for step, (x, y) in enumerate(zip(golden["x"], golden["y"])):
        logits = model(x, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            golden["logits"] = logits.detach().contiguous()
            for parameter, value in model.named_parameters():
                golden[f"grad.{parameter}"] = value.grad.clone().contiguous()
        optimizer.step()
    golden["losses"] = torch.tensor(losses)
    save_file(golden, folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.models:
        make(name, given.folder / name)


if __name__ == "__main__":
    main()
