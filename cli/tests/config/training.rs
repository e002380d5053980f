//! What is trained: adapters, and groups of parameters.

use pipewright::stages::{Stage, Training};

use super::{all_refused, parse, stages, with_sets};

const LLAMA: &str =
    "[model]\nkind = \"llama\"\ndim = 16\nlayers = 2\nheads = 2\n[data]\npath = \"builtin:shakespeare\"\n";

fn llama(more: &str) -> String {
    format!("{LLAMA}{more}")
}

/// How each parameter of a config's model is trained.
fn trained(text: &str) -> Vec<(String, Training)> {
    let config = parse(text).unwrap();
    let mut all = Vec::new();
    for stage in stages(&config) {
        let mut stage = stage.build().unwrap();
        let parameters = stage.parameters().into_iter();
        all.extend(parameters.map(|one| (one.name().to_owned(), one.training())));
    }
    all
}

#[test]
fn with_adapters_only_adapters_are_trained() {
    let all = trained(&llama("[lora]\nrank = 2\ntargets = [\"*.attn.q\", \"h.1.mlp.*\"]\n"));
    let adapters: Vec<&str> =
        all.iter().filter(|(_, how)| !how.frozen).map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        adapters,
        [
            "h.0.attn.q.lora_a.weight",
            "h.0.attn.q.lora_b.weight",
            "h.1.attn.q.lora_a.weight",
            "h.1.attn.q.lora_b.weight",
            "h.1.mlp.gate.lora_a.weight",
            "h.1.mlp.gate.lora_b.weight",
            "h.1.mlp.up.lora_a.weight",
            "h.1.mlp.up.lora_b.weight",
            "h.1.mlp.down.lora_a.weight",
            "h.1.mlp.down.lora_b.weight",
        ]
    );
}

#[test]
fn the_first_group_whose_pattern_fits_decides() {
    let groups = "[optimizer]\ndecay = \"all\"\n\
                  [[optimizer.groups]]\nparameters = [\"h.0.*\", \"wte.weight\"]\nfrozen = true\n\
                  [[optimizer.groups]]\nparameters = [\"*.ln_*\", \"ln_f.weight\"]\nrate = 0.5\n\
                  weight_decay = 0.25\n";
    for (name, how) in trained(&llama(groups)) {
        let is_norm = name.contains("ln_");
        let expected = match name.starts_with("h.0.") || name == "wte.weight" {
            true => Training { frozen: true, ..Training::default() },
            false if is_norm => Training { rate: 0.5, weight_decay: Some(0.25), ..Training::default() },
            false => Training::default(),
        };
        assert_eq!(how, expected, "{name}");
    }
}

#[test]
fn a_group_can_be_trained_besides_adapters() {
    let text = llama("[lora]\nrank = 2\n[[optimizer.groups]]\nparameters = [\"ln_f.*\"]\nrate = 0.5\n");
    let all = trained(&text);
    let norm = all.iter().find(|(name, _)| name == "ln_f.weight").unwrap();
    assert_eq!(norm.1, Training { rate: 0.5, ..Training::default() });
    assert!(all.iter().all(|(name, how)| how.frozen != (name.contains("lora") || name == "ln_f.weight")));
}

#[test]
fn a_run_keeps_its_adapters_and_groups_in_its_config() {
    let text = llama("[lora]\nrank = 2\n[[optimizer.groups]]\nparameters = [\"ln_f.*\"]\nfrozen = true\n");
    let config = parse(&text).unwrap();
    let again = parse(&config.resolved_toml().unwrap()).unwrap();
    assert_eq!((&again.lora, &again.optimizer), (&config.lora, &config.optimizer));
    let other = with_sets(&text, &["lora.rank=4"]).unwrap();
    assert_eq!(other.changes_from(&config).unwrap(), ["lora.rank: 2 -> 4"]);
    let without = with_sets(&text, &["lora.rank=0"]).unwrap();
    assert!(!without.resolved_toml().unwrap().contains("[lora]"));
}

#[test]
fn impossible_adapters_and_groups_are_refused() {
    let cases = [
        (
            "[lora]\nrank = 2\ntargets = [\"*.q_proj\"]\n",
            "lora.targets: `*.q_proj` fits nothing; there are h.*.attn.q, h.*.attn.k, h.*.attn.v, \
             h.*.attn.out, \
             h.*.mlp.gate, h.*.mlp.up, h.*.mlp.down, lm_head",
        ),
        ("[lora]\nrank = 2\ntargets = []\n", "lora.targets: names no layer: give patterns such as"),
        ("[lora]\nrank = 2\ntargets = [\"a[\"]\n", "lora.targets: `a[` is no pattern: "),
        (
            "[lora]\ntargets = [\"*\"]\n",
            "lora.targets: there are no adapters: set lora.rank too, for example to 8",
        ),
        ("[lora]\nrank = 2\nalpha = 0\n", "lora.alpha: 0 is not allowed: it must be above 0"),
        ("[lora]\nrank = 2\ndropout = 1.0\n", "lora.dropout: 1 is not a probability below 1"),
        (
            "[lora]\nrank = 99999999999\n",
            "lora.rank: 99999999999 is too large: at most 4096 rows are supported, lower it",
        ),
        ("[lora]\nr = 2\n", "did you mean `rank`"),
        (
            "[[optimizer.groups]]\nparameters = [\"*.ln_*\", \"ln_f.*\"]\nweight_decay = 0.1\n",
            "optimizer.groups: the group of *.ln_*, ln_f.* has a weight_decay, but no matrix, and \
             optimizer.decay = \"matrices\" applies it to matrices only: set optimizer.decay = \"all\", or \
             leave weight_decay out",
        ),
        ("[lora]\nrank = 2\ntargets = \"*\"\n", "lora.targets: expected a list, got \"*\""),
        (
            "[[optimizer.groups]]\nparameters = [\"h.7.*\"]\nfrozen = true\n",
            "optimizer.groups: `h.7.*` fits nothing; there are wte.weight, h.*.ln_1.weight, ",
        ),
        (
            "[[optimizer.groups]]\nfrozen = true\n",
            "optimizer.groups: a group names no parameters: give it some",
        ),
        (
            "[[optimizer.groups]]\nparameters = [\"*\"]\nfrozen = true\n",
            "optimizer.groups: every parameter is frozen: leave one to train",
        ),
        (
            "[[optimizer.groups]]\nparameters = [\"*\"]\nrate = -1.0\n",
            "optimizer.groups: -1 is not allowed: rate and weight_decay must be 0 or more",
        ),
        (
            "[[optimizer.groups]]\nparameters = [\"*\"]\nlr = 1.0\n",
            "optimizer.groups: expected only the keys `parameters`, `frozen`, `rate`, `weight_decay`, there \
             is no `lr`",
        ),
        ("[optimizer]\ngroups = 3\n", "optimizer.groups: expected a list, got 3"),
    ];
    let texts: Vec<(String, &str)> = cases.iter().map(|(more, said)| (llama(more), *said)).collect();
    for (text, said) in &texts {
        all_refused(&[(text, &[said])]);
    }
}

#[test]
fn adapters_of_a_folder_need_the_model_that_they_are_for() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/hf/llama/lora");
    let said = super::refused(parse(&llama(&format!("[lora]\npath = {folder:?}\n"))));
    assert!(
        said.ends_with(
            "lora.path: adapters belong to a model: set model.path too, to its folder in Hugging Face's form"
        ),
        "{said}"
    );
}
