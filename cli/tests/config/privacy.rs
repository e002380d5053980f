//! `[privacy]`: what does not go together is refused.

use super::{all_refused, parse};

/// A config that trains privately, with further lines of its sections.
fn private(model: &str, data: &str, pipeline: &str, rest: &str) -> String {
    format!(
        "[model]\n{model}\n[data]\nkind = 'jsonl'\npath = 'a.jsonl'\ntokenizer = 't'\n{data}\n\
         [pipeline]\nmicro_batch_size = 1\n{pipeline}\n\
         [privacy]\nclip = 1.0\nsecret_file = 'noise.secret'\n{rest}\n"
    )
}

const SINGLE: &str = "packing = 'single'";

#[test]
fn a_private_config_is_accepted() {
    let config = parse(&private("", SINGLE, "", "noise = 0.5\ndelta = 1e-6")).unwrap();
    assert!(config.is_private());
    assert_eq!((config.privacy.noise, config.privacy.delta), (0.5, 1e-6));
    assert!(config.resolved_toml().unwrap().contains("[privacy]\nclip = 1.0"));
    let pairs = private("", "", "", "[train]\nobjective = 'dpo'").replace("batch_size = 1", "batch_size = 2");
    assert!(parse(&pairs).unwrap().is_private());
    let images = "[model]\nkind = 'mlp'\n[data]\nkind = 'idx'\n[pipeline]\nmicro_batch_size = 1\n\
                  [privacy]\nclip = 1\nnoise = 0";
    assert!(parse(images).unwrap().is_private());
}

#[test]
fn a_config_without_privacy_says_nothing_of_it() {
    let config = parse("").unwrap();
    assert!(!config.is_private());
    assert!(!config.resolved_toml().unwrap().contains("privacy"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let plain = private("", SINGLE, "", "");
    let alone = plain.replace("micro_batch_size = 1", "micro_batch_size = 2");
    let pairs = private("", "", "", "[train]\nobjective = 'dpo'");
    let unkept = plain.replace("secret_file = 'noise.secret'", "");
    let sources = "[data]\nkind = 'jsonl'\ntokenizer = 't'\n[[data.sources]]\nname = 'a'\npath = 'a'\n\
                   [pipeline]\nmicro_batch_size = 1\n[privacy]\nclip = 1.0\nnoise = 0.0";
    let stale = "replicas = 2\nsync = 'server'\nmax_staleness = 1";
    let drawn = "[data]\npath = 'a.txt'\n[pipeline]\nmicro_batch_size = 1\n[privacy]\nclip = 1\nnoise = 0";
    all_refused(&[
        ("[privacy]\nnoise = 1.0", &["my.toml:2: privacy.noise: ", "nothing is private: set privacy.clip"]),
        ("[privacy]\ndelta = 0.1", &["my.toml:2: privacy.delta: ", "nothing is private"]),
        ("[privacy]\nclip = 0.0", &["privacy.clip: 0 is not allowed: it must be above 0"]),
        ("[privacy]\nclip = 1.0\ndelta = 1.0", &["privacy.delta: 1 is not allowed: it must be above 0 and"]),
        ("[privacy]\nclip = 1.0\nnoise = -1.0", &["privacy.noise: -1 is not allowed: it must be 0 or more"]),
        (&unkept, &["privacy.secret_file: noise needs a secret", "openssl rand -hex 32 > noise.secret"]),
        (&alone, &["pipeline.micro_batch_size: a micro-batch of 2 rows has several", "micro_batch_size = 1"]),
        (&pairs, &["pipeline.micro_batch_size: a micro-batch of 1 rows would part the two answers"]),
        (
            &private("", "packing = 'joined'", "", ""),
            &["data.packing: a sample is one document", "\"single\""],
        ),
        (&private("", "packing = 'apart'", "", ""), &["data.packing: a sample is one document"]),
        (drawn, &["data.packing: a sample is one document"]),
        (sources, &["data.sources: epsilon follows from the number of samples"]),
        (&private("", SINGLE, stale, ""), &["pipeline.max_staleness: a training with privacy.clip"]),
        (
            &private("", SINGLE, "barrier = false", ""),
            &["pipeline.barrier: a training with privacy.clip cannot train", "set no privacy.clip, or this"],
        ),
        (&private("", SINGLE, "devices = 'cuda'", ""), &["pipeline.devices: gradients are clipped by"]),
        (&private("tied = true", SINGLE, "", ""), &["model.tied: the gradients of tied weights are added"]),
        (
            "[model]\nkind = 'resnet'\n[data]\nkind = 'cifar10'\n[pipeline]\nmicro_batch_size = 1\n\
             [privacy]\nclip = 1\nnoise = 0",
            &["model.kind: the running means of batch norm"],
        ),
    ]);
}

#[test]
fn tied_weights_may_be_frozen() {
    let adapters = "[lora]\nrank = 2\ntargets = ['*.attn.*']";
    assert!(parse(&private("tied = true", SINGLE, "", adapters)).is_ok());
}
