#!/usr/bin/env python3
"""Trains a small Llama on pairs of answers by TRL, and keeps it for the tests in tests/golden/preferences.

    python3 scripts/preference_golden.py

Needs torch, transformers and trl. Writes model/ (the weights before the training), pairs.jsonl, and for each loss
NAME.safetensors (the weights after it) and losses.json: the loss and the norm of the gradient of each step. A step
is one batch of all pairs, and plain gradient descent. No prompt is empty: there TRL's mean over an answer counts the
first token, which has no probability. `rewards` is TRL's loss of reward models for rewards given there; reward_model/
is a reward model, and `reward` its training. Its padding is a token that no pair has: transformers takes the last
token that is no padding for the end of an answer.
"""
import copy
import json
import pathlib

import datasets
import safetensors.torch
import torch
import transformers
import trl

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
FOLDER = GOLDEN / "preferences"
STEPS, BETA = 4, 0.1
RATES = {"sigmoid": 2.0, "ipo": 0.01, "reward": 0.05}
PADDING = "~"

PAIRS = [
    {"prompt": "The capital of France is", "chosen": " Paris, on the Seine.", "rejected": " Rome."},
    {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5, as some say"},
    {"prompt": "Q: What is ice?\nA:", "chosen": " Frozen water.", "rejected": " A kind of stone that melts."},
    {"prompt": "Hello.", "chosen": " Good morning!", "rejected": " Go away."},
    {"chosen": "The sky is blue.", "rejected": "The sky is green."},
    {"prompt": "Say it twice: ", "chosen": "it it", "rejected": "it"},
]


def filled(pair):
    """TRL takes a prompt from the beginning that both answers have in common, if none is given."""
    if "prompt" in pair:
        return pair
    common = 0
    while pair["chosen"][common] == pair["rejected"][common]:
        common += 1
    chosen, rejected = pair["chosen"], pair["rejected"]
    return {"prompt": chosen[:common], "chosen": chosen[common:], "rejected": rejected[common:]}


def trained(start, tokenizer, kind):
    model = copy.deepcopy(start)
    shared = {"output_dir": "/tmp/preferences", "per_device_train_batch_size": len(PAIRS), "max_length": 64,
              "report_to": [], "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "disable_dropout": True}
    data = datasets.Dataset.from_list([filled(pair) for pair in PAIRS])
    if kind == "reward":
        trainer = trl.RewardTrainer(
            model=model, args=trl.RewardConfig(**shared), train_dataset=data, processing_class=tokenizer)
    else:
        args = trl.DPOConfig(beta=BETA, loss_type=[kind], **shared)
        trainer = trl.DPOTrainer(
            model=model, ref_model=copy.deepcopy(start), args=args, train_dataset=data, processing_class=tokenizer)
    batch = next(iter(trainer.get_train_dataloader()))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATES[kind])
    model.train()
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = trainer.compute_loss(model, batch)
        loss.backward()
        norm = torch.sqrt(sum((one.grad.double() ** 2).sum() for one in model.parameters()))
        steps.append({"loss": loss.item(), "grad_norm": norm.item()})
        optimizer.step()
    safetensors.torch.save_file(
        {name: one.detach().clone().contiguous() for name, one in model.named_parameters()},
        FOLDER / f"{kind}.safetensors")
    return steps


def rewards():
    torch.manual_seed(5)
    given = torch.randn(5, 2, dtype=torch.float64).float().double().requires_grad_()
    loss = -torch.nn.functional.logsigmoid(given[:, 0] - given[:, 1]).mean()
    loss.backward()
    return {"rewards": given.tolist(), "loss": loss.item(), "grad": given.grad.tolist()}


def main():
    FOLDER.mkdir(exist_ok=True)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(GOLDEN / "tokenizer/tokenizer.json"), eos_token="<|endoftext|>",
        pad_token=PADDING)
    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.2,
        bos_token_id=None, eos_token_id=None)
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(FOLDER / "model")
    (FOLDER / "model/generation_config.json").unlink(missing_ok=True)
    (FOLDER / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    losses = {kind: trained(model, tokenizer, kind) for kind in RATES if kind != "reward"}
    assert tokenizer.convert_tokens_to_ids(PADDING) < 512 and not any(PADDING in str(pair) for pair in PAIRS)
    config.num_labels, config.pad_token_id = 1, tokenizer.pad_token_id
    torch.manual_seed(8)
    judge = transformers.LlamaForSequenceClassification(config)
    judge.save_pretrained(FOLDER / "reward_model")
    losses["reward"] = trained(judge, tokenizer, "reward")
    losses["rewards"] = rewards()
    losses["about"] = f"trl {trl.__version__}, torch {torch.__version__}, {STEPS} steps, rates {RATES}, beta {BETA}"
    (FOLDER / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")


main()
