//! Every key of `adapter_config.json` is used, refused by name, or has no effect on numbers.

use pipewright::pretrained::told_of_adapters;
use pipewright_cli::config::Lora;
use serde_json::Map;

use super::*;

/// A folder with adapters that are described so.
fn described(value: &Value) -> TempDir {
    let scratch = tempfile::tempdir().expect("a folder");
    fs::write(scratch.path().join("adapter_config.json"), value.to_string()).expect("written");
    fs::write(scratch.path().join("adapter_model.safetensors"), "").expect("written");
    scratch
}

/// The section `[lora]` for a model and such a folder, or the message without the folder's path.
fn section(family: &str, value: &Value) -> Result<Lora, String> {
    let scratch = described(value);
    let (model, path) = (folder(family), scratch.path().display().to_string());
    let text = format!(
        "[model]\npath = {model:?}\n[lora]\npath = {path:?}\n\
         [data]\nseq = 12\npath = \"builtin:shakespeare\"\n"
    );
    let config = Config::parse("test.toml", &text, &[], &[]);
    let lora = config.map(|config| Lora { path: None, ..config.lora });
    lora.map_err(|error| error.to_string().replace(&path, "F"))
}

/// A key with a value, and what comes of it.
enum Comes {
    /// Rank, alpha, dropout and targets.
    Used(usize, f64, f64, &'static [&'static str]),
    Refused(&'static str),
    Nothing,
}

/// All fields of `peft.LoraConfig` in PEFT 0.21, each with a value that is not its default:
/// `[field.name for field in dataclasses.fields(peft.LoraConfig)]`.
fn keys() -> Vec<(&'static str, Value, Comes)> {
    use Comes::{Nothing, Refused, Used};
    const Q: &[&str] = &["h.*.attn.q"];
    vec![
        ("task_type", json!("CAUSAL_LM"), Nothing),
        ("peft_type", json!("IA3"), Refused("`LORA`")),
        ("auto_mapping", json!({"base_model_class": "X"}), Nothing),
        ("peft_version", json!("0.19.0"), Nothing),
        ("base_model_name_or_path", json!("x/y"), Nothing),
        ("revision", json!("main"), Nothing),
        ("inference_mode", json!(true), Nothing),
        ("r", json!(4), Used(4, 8.0, 0.0, Q)),
        ("target_modules", json!(["k_proj"]), Used(2, 8.0, 0.0, &["h.*.attn.k"])),
        ("exclude_modules", json!(["0.self_attn.q_proj"]), Used(2, 8.0, 0.0, &["h.1.attn.q"])),
        ("lora_alpha", json!(3), Used(2, 3.0, 0.0, Q)),
        ("lora_dropout", json!(0.25), Used(2, 8.0, 0.25, Q)),
        ("fan_in_fan_out", json!(true), Nothing),
        ("bias", json!("lora_only"), Refused("`none`")),
        ("use_rslora", json!(true), Used(2, 8.0 * 2.0_f64.sqrt(), 0.0, Q)),
        (
            "modules_to_save",
            json!(["embed_tokens"]),
            Refused(
                "empty, or [\"score\"] for a reward model: add other modules to the weights of the model \
                 first",
            ),
        ),
        ("init_lora_weights", json!("pissa"), Refused(STARTS)),
        ("layers_to_transform", json!([1]), Used(2, 8.0, 0.0, &["h.1.attn.q"])),
        ("layers_pattern", json!("blocks"), Refused("left out: this model has one list of blocks")),
        ("rank_pattern", json!({"q_proj": 2}), Refused("empty: all adapters have one rank")),
        ("alpha_pattern", json!({"q_proj": 2}), Refused("empty: all adapters have one alpha")),
        ("megatron_config", json!({"x": 1}), Refused("null")),
        ("megatron_core", json!("other.core"), Nothing),
        ("trainable_token_indices", json!([1]), Refused("empty: adapters are of linear layers only")),
        ("loftq_config", json!({"loftq_bits": 4}), Nothing),
        ("eva_config", json!({"rho": 2.0}), Nothing),
        ("corda_config", json!({"corda_method": "ipm"}), Nothing),
        ("lora_ga_config", json!({"direction": "ArBr"}), Nothing),
        ("use_dora", json!(true), Refused("false")),
        ("velora_config", json!({"scale": 1.0}), Refused("null")),
        ("alora_invocation_tokens", json!([5, 6]), Refused("null: an adapter counts for all tokens")),
        ("use_qalora", json!(true), Refused("false")),
        ("qalora_group_size", json!(8), Nothing),
        ("monteclora_config", json!({"num_samples": 4}), Refused("null")),
        ("layer_replication", json!([[0, 1]]), Refused("empty: there is one of each block")),
        ("runtime_config", json!({"ephemeral_gpu_offload": true}), Nothing),
        ("lora_bias", json!(true), Refused("false")),
        (
            "target_parameters",
            json!(["experts.gate_up_proj"]),
            Refused("empty: adapters are of linear layers only"),
        ),
        ("use_bdlora", json!({"nblocks": 2}), Refused("null")),
        ("arrow_config", json!({"top_k": 3}), Refused("null")),
        ("kasa_config", json!({"beta": 1e-4}), Refused("null")),
        ("ensure_weight_tying", json!(true), Nothing),
    ]
}

const STARTS: &str = "true, false, `gaussian`, `eva` or `orthogonal`: other starts change the model's own \
                      weights or freeze a matrix";

fn with(changes: &[(&str, Value)]) -> Value {
    let mut value = Map::new();
    value.insert("peft_type".to_owned(), json!("LORA"));
    value.insert("r".to_owned(), json!(2));
    value.insert("target_modules".to_owned(), json!(["q_proj"]));
    for (key, new) in changes {
        value.insert((*key).to_owned(), new.clone());
    }
    Value::Object(value)
}

#[test]
fn every_key_of_peft_is_used_refused_or_without_effect() {
    let usual = section("llama", &with(&[])).expect("adapters");
    for (key, value, comes) in keys() {
        let got = section("llama", &with(&[(key, value.clone())]));
        match comes {
            Comes::Nothing => assert_eq!(got.as_ref(), Ok(&usual), "{key}"),
            Comes::Used(rank, alpha, dropout, targets) => {
                let targets = targets.iter().map(|&target| target.to_owned()).collect();
                let expected = Lora { rank, alpha, dropout, targets, path: None };
                assert_eq!(got.as_ref(), Ok(&expected), "{key}");
                assert_ne!(expected, usual, "{key}");
            }
            Comes::Refused(expected) => {
                let message = format!("`F/adapter_config.json`: {key} is {value}, it must be {expected}");
                assert_eq!(got, Err(message));
            }
        }
        let told = told_of_adapters(described(&with(&[(key, json!(null))])).path());
        assert!(told.map_or(true, |lines| lines.is_empty()), "{key} is known");
    }
}

/// Values of `init_lora_weights`: those that start adapters only, and those after which they count beside
/// other weights of the model.
#[test]
fn starts_of_adapters_that_change_the_model_are_refused() {
    let usual = section("llama", &with(&[])).expect("adapters");
    let key = "init_lora_weights";
    for start in [json!(true), json!(false), json!("gaussian"), json!("eva"), json!("orthogonal")] {
        assert_eq!(section("llama", &with(&[(key, start)])).as_ref(), Ok(&usual));
    }
    for start in ["pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga", "mica"] {
        let message = section("llama", &with(&[(key, json!(start))])).expect_err("refused");
        let expected =
            format!("`F/adapter_config.json`: init_lora_weights is \"{start}\", it must be {STARTS}");
        assert_eq!(message, expected);
    }
}

#[test]
fn a_key_that_is_not_there_has_the_default_of_peft() {
    for (family, targets) in [("llama", &["h.*.attn.q", "h.*.attn.v"][..]), ("gpt2", &["h.*.attn.c_attn"])] {
        let lora = section(family, &json!({"peft_type": "LORA"})).expect("adapters");
        assert_eq!((lora.rank, lora.alpha, lora.dropout), (8, 8.0, 0.0), "{family}");
        assert_eq!(lora.targets, targets, "{family}");
    }
}

#[test]
fn a_key_that_nobody_knows_is_told() {
    let scratch = described(&with(&[("lora_gamma", json!(1)), ("mode", json!("new"))]));
    let path = scratch.path().join("adapter_config.json");
    let told = told_of_adapters(scratch.path()).expect("adapters");
    let line = format!(
        "{}: lora_gamma, mode: neither PEFT 0.21 nor this program knows it, so it changes nothing; in a \
         newer PEFT it may",
        path.display()
    );
    assert_eq!(told, [line]);
}

/// What `peft.get_peft_model(model, LoraConfig(...)).base_model.targeted_module_names` says of these, in our
/// names.
#[test]
fn modules_are_chosen_by_the_rule_of_peft() {
    let llama_all: &[&str] = &[
        "h.*.attn.k",
        "h.*.attn.out",
        "h.*.attn.q",
        "h.*.attn.v",
        "h.*.mlp.down",
        "h.*.mlp.gate",
        "h.*.mlp.up",
    ];
    let gpt_all: &[&str] = &["h.*.attn.c_attn", "h.*.attn.c_proj", "h.*.mlp.c_fc", "h.*.mlp.c_proj"];
    let (modules, layers) = ("target_modules", "layers_to_transform");
    for (family, changes, expected) in [
        ("llama", vec![(modules, json!("all-linear"))], llama_all),
        ("mixtral", vec![(modules, json!("all-linear"))], &llama_all[..4]),
        ("gpt2", vec![(modules, json!("All-Linear"))], gpt_all),
        ("llama", vec![(modules, json!(["self_attn.q_proj", "up_proj"]))], &["h.*.attn.q", "h.*.mlp.up"]),
        (
            "llama",
            vec![(
                modules,
                json!(["1.self_attn.q_proj", "layers.0.mlp.up_proj", "model.layers.1.mlp.down_proj"]),
            )],
            &["h.0.mlp.up", "h.1.attn.q", "h.1.mlp.down"],
        ),
        ("llama", vec![(modules, json!(r"(?!.*\.0\.).*\.[qk]_proj"))], &["h.1.attn.k", "h.1.attn.q"]),
        (
            "llama",
            vec![(modules, json!(["q_proj", "v_proj"])), ("exclude_modules", json!(["0.self_attn.v_proj"]))],
            &["h.*.attn.q", "h.1.attn.v"],
        ),
        (
            "llama",
            vec![(modules, json!(["q_proj", "v_proj"])), ("exclude_modules", json!(r".*\.1\..*"))],
            &["h.0.attn.q", "h.0.attn.v"],
        ),
        ("llama", vec![(layers, json!(0)), ("layers_pattern", json!("layers"))], &["h.0.attn.q"]),
        ("llama", vec![(layers, json!([0, 1])), ("layers_pattern", json!(["layers"]))], &["h.*.attn.q"]),
        ("llama", vec![(layers, json!([]))], &["h.*.attn.q"]),
        (
            "llama",
            vec![(modules, json!(["model.layers.0.self_attn.q_proj", "v_proj"])), (layers, json!([1]))],
            &["h.0.attn.q", "h.1.attn.v"],
        ),
        (
            "mistral",
            vec![(modules, json!(["lm_head", "q_proj"])), (layers, json!([1]))],
            &["h.1.attn.q", "lm_head"],
        ),
        (
            "mistral",
            vec![(modules, json!(["lm_head", "q_proj"])), ("exclude_modules", json!(["lm_head"]))],
            &["h.*.attn.q"],
        ),
    ] {
        let lora = section(family, &with(&changes)).unwrap_or_else(|error| panic!("{changes:?}: {error}"));
        assert_eq!(lora.targets, expected, "{family}: {changes:?}");
    }
}

#[test]
fn modules_that_cannot_be_chosen_are_refused() {
    let form = "it must be a list of names, `all-linear`, or a regular expression";
    for (key, value, message) in [
        (
            "target_modules",
            json!(["qq"]),
            "target_modules names `qq`; this model has self_attn.q_proj, self_attn.k_proj, self_attn.v_proj, \
             self_attn.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj"
                .to_owned(),
        ),
        ("target_modules", json!("(q_proj"), format!("target_modules is \"(q_proj\", {form}")),
        ("target_modules", json!(3), format!("target_modules is 3, {form}")),
        ("exclude_modules", json!([3]), format!("exclude_modules is [3], {form}")),
        (
            "target_modules",
            json!("q_proj"),
            "target_modules is \"q_proj\", it must be of modules of this model, which are not all excluded"
                .to_owned(),
        ),
        (
            "target_modules",
            json!(["lm_head"]),
            "target_modules is [\"lm_head\"], it must be without lm_head, which has the weights of the token \
             embedding in this model"
                .to_owned(),
        ),
        (
            "layers_to_transform",
            json!("1"),
            "layers_to_transform is \"1\", it must be a number or a list of numbers".to_owned(),
        ),
        ("r", json!(0), "r is 0, it must be 1 or more".to_owned()),
    ] {
        let refused = section("llama", &with(&[(key, value)])).expect_err("refused");
        assert_eq!(refused, format!("`F/adapter_config.json`: {message}"));
    }
    let both = with(&[("target_modules", json!(".*q_proj")), ("layers_to_transform", json!([1]))]);
    assert_eq!(
        section("llama", &both).expect_err("refused"),
        "`F/adapter_config.json`: layers_to_transform is [1], it must be left out beside a regular \
         expression in target_modules"
    );
}
