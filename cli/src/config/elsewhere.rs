//! What other programs call our keys and their values: transformers, PEFT, TRL, DeepSpeed, torchtitan,
//! Lightning and PyTorch.

use toml::Value;

/// A key of ours, under a name of another program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// The other program's name, in small letters.
    pub(super) name: &'static str,
    /// The section of our key.
    pub(super) section: &'static str,
    /// Our key.
    pub(super) key: &'static str,
    /// How our key differs. Empty if it does not.
    pub(super) note: &'static str,
}

const fn row(name: &'static str, section: &'static str, key: &'static str, note: &'static str) -> Named {
    Named {
        name,
        section,
        key,
        note,
    }
}

const STEPS: &str = "it counts steps, each of all rows of a batch, and not epochs";
const COUNTS: &str = "it counts steps";
const BRAIN: &str = "write pipeline.dtype = \"bf16\"";
const NO_F16: &str = "there is no f16: write pipeline.dtype = \"bf16\"";
const SEEDS: &str = "it is for weights and dropout; data.seed is for the order of rows";
const SHARDED: &str = "with replicas, `true` divides the optimizer's state among them";
const BOARD: &str = "write metrics.tensorboard = true";
const BETAS: &str = "write both, such as optimizer.betas = [0.9, 0.95]";
const RECOMPUTE: &str = "write pipeline.recompute = \"full\" or \"selective\"";

/// Names of keys. Where a name stands for several keys, the section in which it was written decides, and
/// after that the first row.
pub(super) const KEYS: &[Named] = &[
    row("d_model", "model", "dim", ""),
    row("embedding_dim", "model", "dim", ""),
    row("hidden_dim", "model", "dim", ""),
    row("hidden_size", "model", "dim", ""),
    row("n_embd", "model", "dim", ""),
    row("n_layer", "model", "layers", ""),
    row("n_layers", "model", "layers", ""),
    row("num_hidden_layers", "model", "layers", ""),
    row("num_layers", "model", "layers", ""),
    row("n_head", "model", "heads", ""),
    row("n_heads", "model", "heads", ""),
    row("num_attention_heads", "model", "heads", ""),
    row("num_heads", "model", "heads", ""),
    row("n_kv_heads", "model", "kv_heads", ""),
    row("num_key_value_heads", "model", "kv_heads", ""),
    row("head_dim", "model", "head_width", ""),
    row("intermediate_size", "model", "ffn", ""),
    row("max_position_embeddings", "model", "context", ""),
    row("rms_norm_eps", "model", "norm_epsilon", ""),
    row("layer_norm_epsilon", "model", "norm_epsilon", ""),
    row("num_local_experts", "model", "experts", ""),
    row("num_experts_per_tok", "model", "experts_per_token", ""),
    row("router_aux_loss_coef", "model", "auxiliary", ""),
    row("sliding_window", "model", "window", ""),
    row("pad_token_id", "model", "padding_token", ""),
    row("vocab_size", "model", "vocab", ""),
    row("tie_word_embeddings", "model", "tied", ""),
    row("num_classes", "model", "classes", ""),
    row("num_labels", "model", "classes", ""),
    row("model_type", "model", "kind", ""),
    row("model_name_or_path", "model", "path", ""),
    row("pretrained_model_name_or_path", "model", "path", ""),
    row("name_or_path", "model", "path", ""),
    row("seed", "model", "seed", SEEDS),
    row("random_seed", "model", "seed", SEEDS),
    row("r", "lora", "rank", ""),
    row("lora_r", "lora", "rank", ""),
    row("lora_rank", "lora", "rank", ""),
    row("lora_alpha", "lora", "alpha", ""),
    row("lora_dropout", "lora", "dropout", ""),
    row("target_modules", "lora", "targets", ""),
    row("lora_target_modules", "lora", "targets", ""),
    row("adapter_name_or_path", "lora", "path", ""),
    row("block_size", "data", "seq", ""),
    row("context", "data", "seq", ""),
    row("max_length", "data", "seq", ""),
    row("max_seq_length", "data", "seq", ""),
    row("n_ctx", "data", "seq", ""),
    row("seq_len", "data", "seq", ""),
    row("data_path", "data", "path", ""),
    row("dataset_path", "data", "path", ""),
    row(
        "dataset",
        "data",
        "path",
        "it names files or a folder; nothing is downloaded",
    ),
    row(
        "dataset_name",
        "data",
        "path",
        "it names files or a folder; nothing is downloaded",
    ),
    row("dataset_text_field", "data", "field", ""),
    row("text_column", "data", "field", ""),
    row("chat_template", "data", "template", ""),
    row(
        "tokenizer_name",
        "data",
        "tokenizer",
        "it names a file or a folder",
    ),
    row("tokenizer_path", "data", "tokenizer", ""),
    row(
        "assistant_only_loss",
        "data",
        "loss_on",
        "write data.loss_on = \"answers\"",
    ),
    row(
        "completion_only_loss",
        "data",
        "loss_on",
        "write data.loss_on = \"answers\"",
    ),
    row(
        "train_on_inputs",
        "data",
        "loss_on",
        "for `false`, write data.loss_on = \"answers\"",
    ),
    row("data_seed", "data", "seed", ""),
    row("test_size", "data", "validation", ""),
    row("validation_split", "data", "validation", ""),
    row("validation_file", "data", "validation_path", ""),
    row("accumulate_grad_batches", "pipeline", "micro_batches", ""),
    row("gradient_accumulation_steps", "pipeline", "micro_batches", ""),
    row("per_device_train_batch_size", "pipeline", "micro_batch_size", ""),
    row(
        "train_micro_batch_size_per_gpu",
        "pipeline",
        "micro_batch_size",
        "",
    ),
    row("local_batch_size", "pipeline", "micro_batch_size", ""),
    row(
        "pipeline_parallel_microbatch_size",
        "pipeline",
        "micro_batch_size",
        "",
    ),
    row("train_batch_size", "pipeline", "batch_size", ""),
    row("global_batch_size", "pipeline", "batch_size", ""),
    row("num_stages", "pipeline", "stages", ""),
    row("pipeline_parallel_degree", "pipeline", "stages", ""),
    row("pipeline_parallel_schedule", "pipeline", "schedule", ""),
    row("data_parallel_replicate_degree", "pipeline", "replicas", ""),
    row(
        "num_gpus",
        "pipeline",
        "devices",
        "write a list, such as pipeline.devices = [\"cuda:0\", \"cuda:1\"]",
    ),
    row("device", "pipeline", "devices", ""),
    row("bf16", "pipeline", "dtype", BRAIN),
    row("fp16", "pipeline", "dtype", NO_F16),
    row("mixed_precision", "pipeline", "dtype", BRAIN),
    row("mixed_precision_param", "pipeline", "dtype", BRAIN),
    row("precision", "pipeline", "dtype", BRAIN),
    row("torch_dtype", "pipeline", "dtype", ""),
    row("gradient_checkpointing", "pipeline", "recompute", RECOMPUTE),
    row("activation_checkpoint", "pipeline", "recompute", RECOMPUTE),
    row("activation_checkpointing", "pipeline", "recompute", RECOMPUTE),
    row("gradient_clip", "optimizer", "clip", ""),
    row("gradient_clip_val", "optimizer", "clip", ""),
    row("gradient_clipping", "optimizer", "clip", ""),
    row("max_grad_norm", "optimizer", "clip", ""),
    row("max_norm", "optimizer", "clip", ""),
    row("lr", "optimizer", "learning_rate", ""),
    row("min_lr", "optimizer", "min_learning_rate", ""),
    row("wd", "optimizer", "weight_decay", ""),
    row("name", "optimizer", "kind", ""),
    row("type", "optimizer", "kind", ""),
    row("type", "model", "kind", ""),
    row("type", "data", "kind", ""),
    row("optim", "optimizer", "kind", ""),
    row("optimizer", "optimizer", "kind", ""),
    row("adam_beta1", "optimizer", "betas", BETAS),
    row("adam_beta2", "optimizer", "betas", BETAS),
    row("beta1", "optimizer", "betas", BETAS),
    row("beta2", "optimizer", "betas", BETAS),
    row("adam_epsilon", "optimizer", "eps", ""),
    row("epsilon", "optimizer", "eps", ""),
    row("lr_scheduler", "optimizer", "schedule", ""),
    row("lr_scheduler_type", "optimizer", "schedule", ""),
    row("scheduler", "optimizer", "schedule", ""),
    row("warmup", "optimizer", "warmup_steps", COUNTS),
    row("warmup_ratio", "optimizer", "warmup_steps", COUNTS),
    row("decay_ratio", "optimizer", "decay_steps", COUNTS),
    row("label_smoothing_factor", "optimizer", "label_smoothing", ""),
    row("fsdp", "optimizer", "sharded", SHARDED),
    row("zero_optimization", "optimizer", "sharded", SHARDED),
    row("zero_stage", "optimizer", "sharded", SHARDED),
    row("data_parallel_shard_degree", "optimizer", "sharded", SHARDED),
    row("epochs", "train", "steps", STEPS),
    row("max_epochs", "train", "steps", STEPS),
    row("n_epochs", "train", "steps", STEPS),
    row("num_epochs", "train", "steps", STEPS),
    row("num_train_epochs", "train", "steps", STEPS),
    row("max_steps", "train", "steps", ""),
    row("run_name", "train", "name", ""),
    row("experiment_name", "train", "name", ""),
    row(
        "output_dir",
        "train",
        "name",
        "the run is in runs/NAME; --run-dir names another folder",
    ),
    row(
        "dump_folder",
        "train",
        "name",
        "the run is in runs/NAME; --run-dir names another folder",
    ),
    row("eval_interval", "train", "validate_every", COUNTS),
    row("eval_steps", "train", "validate_every", COUNTS),
    row("eval_strategy", "train", "validate_every", COUNTS),
    row("evaluation_strategy", "train", "validate_every", COUNTS),
    row("val_check_interval", "train", "validate_every", COUNTS),
    row("log_freq", "train", "print_every", ""),
    row("log_interval", "train", "print_every", ""),
    row("logging_steps", "train", "print_every", ""),
    row("steps_per_print", "train", "print_every", ""),
    row("save_interval", "checkpoint", "every", COUNTS),
    row("save_steps", "checkpoint", "every", COUNTS),
    row("save_strategy", "checkpoint", "every", COUNTS),
    row("interval", "checkpoint", "every", COUNTS),
    row("save_total_limit", "checkpoint", "keep", ""),
    row("enable_tensorboard", "metrics", "tensorboard", ""),
    row("logging_dir", "metrics", "tensorboard", BOARD),
    row("report_to", "metrics", "tensorboard", BOARD),
    row(
        "master_addr",
        "launch",
        "address",
        "write host and port, or set MASTER_ADDR and MASTER_PORT",
    ),
];

const EARLY: &str =
    "there is no early stopping: the run keeps its best checkpoint, and Ctrl-C saves and ends it";
const PROCESSES: &str = "start one process a host, by srun, mpirun, torchrun or by hand";
const STRATEGY: &str = "write pipeline.stages and pipeline.replicas: how many parts, and how many copies";
const RSLORA: &str = "adapters are scaled by alpha / rank: for rsLoRA, set lora.alpha to alpha x sqrt(rank)";
const COMPILE: &str = "nothing is compiled while a run starts: leave it out";
const TENSOR: &str = "there is no tensor parallelism: cut the model into more stages, with pipeline.stages";

/// Names of what is no key here, with what to do instead.
pub(super) const NO_KEYS: &[(&str, &str)] = &[
    ("early_stopping", EARLY),
    ("early_stopping_patience", EARLY),
    ("patience", EARLY),
    (
        "load_best_model_at_end",
        "`best` in the run's run.json names the best checkpoint",
    ),
    (
        "metric_for_best_model",
        "the best checkpoint is the one of the lowest validation loss",
    ),
    (
        "resume_from_checkpoint",
        "it is an option of the command: pipewright train CONFIG --resume",
    ),
    (
        "deepspeed",
        "there is no second config: write pipeline, optimizer and train here",
    ),
    ("torch_compile", COMPILE),
    ("compile", COMPILE),
    (
        "dataloader_num_workers",
        "a thread reads data ahead: leave it out",
    ),
    ("num_workers", "a thread reads data ahead: leave it out"),
    (
        "shuffle",
        "data for training are always shuffled, with data.seed; data for validation never are",
    ),
    ("tensor_parallel_degree", TENSOR),
    ("tensor_parallel_size", TENSOR),
    ("num_nodes", PROCESSES),
    ("nnodes", PROCESSES),
    ("strategy", STRATEGY),
    ("use_rslora", RSLORA),
    ("use_dora", "DoRA is not there: leave it out for LoRA"),
    (
        "bias",
        "adapters have no biases, and other layers have what their model has: leave it out",
    ),
    (
        "modules_to_save",
        "write optimizer.groups = [{ parameters = [\"lm_head.*\"], frozen = false }]",
    ),
    (
        "eos_token",
        "the tokenizer's folder says it; data.end_of_text says whether one ends each text",
    ),
    (
        "load_in_4bit",
        "weights of 4 bits are read from a .gguf file, named by model.path, and trained in 32 bits",
    ),
    (
        "load_in_8bit",
        "weights of 8 bits are read from a .gguf file, named by model.path, and trained in 32 bits",
    ),
    (
        "push_to_hub",
        "nothing is uploaded: `pipewright export RUN FOLDER` writes a folder of Hugging Face",
    ),
    (
        "wandb_project",
        "nothing is sent to others: metrics.jsonl in the run directory has one JSON object a step",
    ),
];

const ADAMW: &str = "write \"adamw\"";
const ANSWERS: &str = "write \"answers\"";
const WARMUP: &str = "give the steps of the warm-up by optimizer.warmup_steps, and what follows them here";
const NVIDIA: &str = "there are CPUs and NVIDIA's GPUs";

/// Values that other programs have: the section, the key, the value in small letters, and what to write.
pub(super) const VALUES: &[(&str, &str, &str, &str)] = &[
    (
        "data",
        "kind",
        "csv",
        "a program of your own reads it, by `data::Table`",
    ),
    ("data", "kind", "mnist", "write \"idx\""),
    ("data", "loss_on", "assistant", ANSWERS),
    ("data", "loss_on", "completion", ANSWERS),
    (
        "lora",
        "targets",
        "all-linear",
        "write [\"*.attn.*\", \"*.mlp.*\"]",
    ),
    (
        "optimizer",
        "kind",
        "adam",
        "\"adamw\" with optimizer.weight_decay = 0 is the same",
    ),
    ("optimizer", "kind", "adamw_torch", ADAMW),
    ("optimizer", "kind", "adamw_torch_fused", ADAMW),
    ("optimizer", "kind", "fusedadam", ADAMW),
    ("optimizer", "schedule", "constant_with_warmup", WARMUP),
    ("optimizer", "schedule", "cosine_with_warmup", WARMUP),
    ("pipeline", "devices", "gpu", "write \"cuda\""),
    ("pipeline", "devices", "mps", NVIDIA),
    ("pipeline", "devices", "rocm", NVIDIA),
    ("pipeline", "dtype", "16-mixed", NO_F16),
    ("pipeline", "dtype", "bfloat16", BRAIN),
    ("pipeline", "dtype", "bf16-mixed", BRAIN),
    ("pipeline", "dtype", "f16", NO_F16),
    ("pipeline", "dtype", "float16", NO_F16),
    ("pipeline", "dtype", "float32", "write \"f32\""),
    ("pipeline", "dtype", "fp16", NO_F16),
    ("pipeline", "dtype", "half", NO_F16),
    ("pipeline", "recompute", "true", RECOMPUTE),
    ("pipeline", "recompute", "false", "write \"none\""),
];

/// What to write in place of a value that another program has.
pub(super) fn instead_of(section: &str, key: &str, value: &Value) -> Option<&'static str> {
    let value = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_lowercase);
    let mut rows = VALUES.iter();
    let found = rows.find(|(of, name, word, _)| (*of, *name, *word) == (section, key, value.as_str()));
    found.map(|(.., instead)| *instead)
}
