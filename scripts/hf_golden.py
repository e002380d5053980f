#!/usr/bin/env python3
"""Makes small models of random weights with Hugging Face's transformers, and what it computes with them.

    python3 scripts/hf_golden.py tests/golden/hf

Needs torch, transformers, peft and safetensors. Each family gets a folder: the model as transformers saves it, and
golden.safetensors with batches (x, y), logits, gradients of the mean loss, and the losses of 20 steps of AdamW on two
batches in turn, in f32 on the CPU. documents.safetensors has the same where the rows have several documents, which
begin at `starts` and do not see each other. Some have a folder lora inside: adapters as PEFT saves them, and the same numbers
with them, where only the adapters are trained. The folders are kept with the tests; this script makes them again.
"""
import argparse
import json
import pathlib
import shutil

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

STEPS, BATCHES, ROWS, TIME, VOCAB = 20, 2, 4, 12, 96
# The lengths of the documents in each row.
DOCUMENTS = [[5, 7], [12], [1, 3, 8], [6, 1, 5]]
SHARED = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, intermediate_size=48, max_position_embeddings=64,
              bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
MODELS = {
    "llama": (transformers.LlamaConfig, dict(SHARED, tie_word_embeddings=True)),
    "llama3": (transformers.LlamaConfig, dict(SHARED, rope_parameters=LLAMA3, num_key_value_heads=1)),
    "padded": (transformers.LlamaConfig, dict(SHARED, pad_token_id=5, tie_word_embeddings=True)),
    "mistral": (transformers.MistralConfig, dict(SHARED, sliding_window=5)),
    "qwen2": (transformers.Qwen2Config, dict(SHARED, tie_word_embeddings=True)),
    "qwen3": (transformers.Qwen3Config, dict(SHARED, head_dim=16)),
    "mixtral": (transformers.MixtralConfig, dict(SHARED, intermediate_size=24, num_local_experts=4,
                                                   num_experts_per_tok=2)),
    "gpt2": (transformers.GPT2Config, dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=24,
                                           resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                           bos_token_id=None, eos_token_id=None)),
}

# PEFT saves the weights of an adapted head beside its adapter.
LORA = {
    "llama": dict(target_modules=["q_proj", "v_proj", "down_proj"]),
    "gpt2": dict(target_modules=["c_attn", "c_fc"]),
    "mistral": dict(target_modules=r".*\.q_proj|lm_head", use_rslora=True),
}


def in_file(name, grad):
    """The tensors of a parameter as save_pretrained writes them: experts' tensors one by one."""
    if "experts" not in name:
        return [(name.replace(".mlp.gate.", ".block_sparse_moe.gate."), grad)]
    start, which = name.replace(".mlp.", ".block_sparse_moe.").rsplit(".", 1)
    parts = ["w1", "w3"] if which == "gate_up_proj" else ["w2"]
    return [(f"{start}.{expert}.{part}.weight", numbers)
            for expert, of_expert in enumerate(grad)
            for part, numbers in zip(parts, of_expert.chunk(len(parts)))]


def record(model, golden, **inputs):
    """Adds logits, gradients and the losses of the steps."""
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(parameters.values(), lr=3e-3, weight_decay=0.01)
    losses = []
    for step, (x, y) in enumerate(zip(golden["x"], golden["y"])):
        logits = model(x, use_cache=False, **inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            golden["logits"] = logits.detach().contiguous()
            for parameter, value in parameters.items():
                for tensor, grad in in_file(parameter, value.grad):
                    golden[f"grad.{tensor}"] = grad.clone().contiguous()
        optimizer.step()
    golden["losses"] = torch.tensor(losses)
    return f"loss {losses[0]:.4f} to {losses[-1]:.4f}"


def make_documents(folder):
    """Writes what a model computes of rows with several documents: positions from 0 in each, and a mask of blocks."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    recorded = load_file(folder / "golden.safetensors")
    golden = {key: recorded[key][:6].contiguous() for key in "xy"}
    starts = torch.tensor([[sum(row[:index]) for index, length in enumerate(row) for _ in range(length)]
                           for row in DOCUMENTS])
    places = torch.arange(TIME)
    seen = (starts[:, :, None] <= places) & (places <= places[:, None])
    seen &= places > places[:, None] - (getattr(model.config, "sliding_window", None) or TIME)
    mask = torch.zeros(ROWS, 1, TIME, TIME).masked_fill(~seen[:, None], torch.finfo(torch.float32).min)
    told = record(model, golden, position_ids=places - starts, attention_mask=mask)
    golden["starts"] = starts
    save_file(golden, folder / "documents.safetensors")
    print(f"{folder.name}, documents apart: {told}")


def shake(parameters):
    """Moves weights that start at zero or one: an error in them would not show."""
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn_like(parameter) * 0.05)


def readable(folder):
    for file in folder.iterdir():
        file.chmod(0o755 if file.is_dir() else 0o644)


def make_lora(name, folder, golden):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    settings = peft.LoraConfig(r=3, lora_alpha=6, task_type="CAUSAL_LM", **LORA[name])
    model = peft.get_peft_model(model, settings)
    shake(value for name, value in model.named_parameters() if value.requires_grad or "base_layer.weight" in name
          and "lm_head" in name)
    model.save_pretrained(folder / "lora")
    (folder / "lora" / "README.md").unlink(missing_ok=True)
    described = folder / "lora" / "adapter_config.json"
    described.write_text(json.dumps(json.loads(described.read_text()) | {"base_model_name_or_path": None}, indent=2))
    golden = {key: golden[key] for key in "xy"}
    told = record(model, golden)
    golden = {key.replace(".default", ""): value for key, value in golden.items()}
    save_file(golden, folder / "lora" / "golden.safetensors")
    readable(folder / "lora")
    print(f"{name} with adapters: {told}")


def make(name, folder):
    kind, settings = MODELS[name]
    torch.manual_seed(sum(name.encode()))
    config = kind(**settings)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    shake(model.parameters())
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="30KB" if name == "qwen3" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(VOCAB, (BATCHES, ROWS, TIME + 1)).repeat(STEPS // BATCHES, 1, 1)
    golden = {"x": ids[..., :-1].contiguous(), "y": ids[..., 1:].contiguous()}
    told = record(model, golden)
    save_file(golden, folder / "golden.safetensors")
    readable(folder)
    print(f"{name}: {told}")
    make_documents(folder)
    readable(folder)
    if name in LORA:
        make_lora(name, folder, golden)


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
