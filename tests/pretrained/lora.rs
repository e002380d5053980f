//! Adapters in PEFT's form: what they compute, how they train, how they are read and written.

use std::path::Path;
use std::sync::Arc;

use pipewright::Pipeline;
use pipewright::compose;
use pipewright::config::Config;
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::pretrained::{Adapters, Target, open_adapters, read_adapters, read_config, write_adapters};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::optimizer::LearningRate;
use pipewright::stages::{ForwardContext, Init, Mode, Parameter, Stage};

use crate::family::{Golden, assert_near, folder};
use crate::recorder::Recorder;

/// The families that have adapters: which layers, by our names, and the blocks and layers by theirs.
const FAMILIES: [(&str, &[&str]); 2] = [
    ("llama", &["h.*.attn.q", "h.*.attn.v", "h.*.mlp.down"]),
    ("gpt2", &["h.*.attn.c_attn", "h.*.mlp.c_fc"]),
];

/// A config for a family's folder, with more settings.
fn config(family: &str, more: &[&str]) -> pipewright::Result<Config> {
    let text = format!(
        "[model]\npath = {:?}\n[data]\npath = \"builtin:shakespeare\"\nseq = 12\n",
        folder(family)
    );
    let sets: Vec<String> = more.iter().map(|set| (*set).to_owned()).collect();
    Config::parse("test.toml", &text, &[], &sets)
}

fn with_adapters(family: &str) -> Config {
    let path = folder(family).join("lora");
    config(family, &[&format!("lora.path={}", path.display())]).expect("adapters of this model")
}

/// The name of a parameter of an adapter in PEFT's model.
fn theirs(ours: &str, family: &str) -> String {
    let mut name = ours.replace("lora_a", "lora_A").replace("lora_b", "lora_B");
    if family == "llama" {
        for (ours, theirs) in [
            ("h.", "model.layers."),
            ("attn.q", "self_attn.q_proj"),
            ("attn.v", "self_attn.v_proj"),
            ("mlp.down", "mlp.down_proj"),
        ] {
            name = name.replacen(ours, theirs, 1);
        }
    } else {
        name = format!("transformer.{name}");
    }
    format!("base_model.model.{name}")
}

#[test]
fn the_config_of_adapters_decides_the_section_lora() {
    for (family, targets) in FAMILIES {
        let lora = with_adapters(family).lora;
        assert_eq!((lora.rank, lora.alpha, lora.dropout), (3, 6.0, 0.0), "{family}");
        assert_eq!(lora.targets, targets, "{family}");
    }
}

#[test]
fn logits_are_those_of_peft_also_when_merged() {
    for (family, _) in FAMILIES {
        let golden = Golden::read_in(&folder(family).join("lora"));
        let expected = golden.numbers("logits");
        let config = with_adapters(family);
        let count = compose::model(&config).unwrap().names().len();
        let mut stages = compose::stages(&config, &[count]).unwrap();
        let mut model = stages.remove(0).build().unwrap();
        let data = golden.batches();
        let logits = |model: &mut dyn FnMut(ForwardContext, pipewright::stages::Tensor) -> Vec<f32>| {
            let of = |micro_batch| {
                let (input, _) = data.micro_batch(0, MicroBatch(micro_batch)).unwrap();
                let mode = Mode::Evaluate;
                let at = ForwardContext {
                    step: 0,
                    micro_batch,
                    mode,
                };
                model(at, input)
            };
            (0..4).flat_map(of).collect::<Vec<f32>>()
        };
        let got = logits(&mut |at, input| model.forward(at, input).unwrap().0.f32().to_vec());
        assert_near(&got, &expected, 1e-4, family);

        let mut merged = compose::model(&config).unwrap().whole().unwrap();
        let pairs = merged.parameters().into_iter().zip(model.parameters());
        pairs.for_each(|(to, from)| to.value.copy_from_slice(&from.value));
        merged.merge_adapters();
        assert!(merged.parameters().iter().all(|one| !one.name().contains("lora")));
        let got = logits(&mut |at, input| merged.forward(at, input).unwrap().0.f32().to_vec());
        assert_near(&got, &expected, 1e-4, &format!("{family}, merged"));
    }
}

#[test]
fn adapters_train_as_those_of_peft_for_one_to_four_stages() {
    for (family, _) in FAMILIES {
        let golden = Golden::read_in(&folder(family).join("lora"));
        let expected = golden.numbers("losses");
        for stages in 1..=4 {
            let what = format!("{family} in {stages} stages");
            let config = with_adapters(family);
            let counts = compose::model(&config).unwrap().balanced(stages).unwrap();
            let recorder = Recorder::default();
            let gradients = Arc::clone(&recorder.gradients);
            let mut pipeline = Pipeline::builder()
                .schedule(Schedule::named("1f1b", stages, 4).unwrap())
                .stages(compose::stages(&config, &counts).unwrap())
                .loss(CrossEntropy::default())
                .data(golden.batches() as Arc<dyn DataSource>)
                .optimizer(recorder)
                .learning_rate(LearningRate::Constant(3e-3))
                .pin(false)
                .launch()
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let losses = expected.iter().map(|_| pipeline.step().unwrap().loss as f32);
            assert_near(&losses.collect::<Vec<f32>>(), &expected, 1e-4, &what);
            let gradients = gradients.lock().unwrap();
            assert_eq!(
                gradients.len(),
                if family == "llama" { 12 } else { 8 },
                "only adapters"
            );
            for (name, got) in gradients.iter() {
                let expected = golden.numbers(&format!("grad.{}", theirs(name, family)));
                assert_near(got, &expected, 1e-4, &format!("{what}: {name}"));
            }
        }
    }
}

fn read(folder: &Path, of: &Path, rank: usize, targets: &[Target]) -> Vec<Vec<f32>> {
    let architecture = read_config(of).unwrap();
    let weights = open_adapters(folder, &architecture, rank, targets).unwrap();
    let both = |(target, [inputs, outputs]): &Target| {
        let mut down = Parameter::new(
            format!("{target}.lora_a.weight"),
            &[rank, *inputs],
            Init::Zeros,
            0,
        );
        let mut up = Parameter::new(
            format!("{target}.lora_b.weight"),
            &[*outputs, rank],
            Init::Zeros,
            0,
        );
        weights.read(&mut down).unwrap();
        weights.read(&mut up).unwrap();
        [down.value.to_vec(), up.value.to_vec()]
    };
    targets.iter().flat_map(both).collect()
}

#[test]
fn written_adapters_are_read_again() {
    for (family, patterns) in FAMILIES {
        let (config, of) = (with_adapters(family), folder(family));
        let targets = compose::adapted(&config).unwrap();
        let numbers = read(&of.join("lora"), &of, 3, &targets);
        let names = targets
            .iter()
            .flat_map(|(target, _)| ["a", "b"].map(|which| format!("{target}.lora_{which}.weight")));
        let by_name: std::collections::HashMap<String, Vec<f32>> = names.zip(numbers.clone()).collect();
        let adapters = Adapters {
            rank: 3,
            alpha: 6.0,
            dropout: 0.25,
            targets: patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
        };
        let architecture = read_config(&of).unwrap();
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("adapters");
        let base = Some(Path::new("base"));
        let weights = |name: &str| Ok(by_name[name].clone());
        write_adapters(&folder, &architecture, &adapters, &targets, base, weights).unwrap();
        assert_eq!(read(&folder, &of, 3, &targets), numbers, "{family}");
        let again = read_adapters(&folder, architecture.name()).unwrap();
        let kept = |of: &Adapters| (of.rank, of.alpha, of.dropout);
        assert_eq!(kept(&again), kept(&adapters), "{family}");
        let text = std::fs::read_to_string(folder.join("adapter_config.json")).unwrap();
        assert!(text.contains("\"base_model_name_or_path\": \"base\""), "{text}");
    }
}

#[test]
fn adapters_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let refused = |described: &str| {
        std::fs::write(folder.path().join("adapter_config.json"), described).unwrap();
        std::fs::write(folder.path().join("adapter_model.safetensors"), "").unwrap();
        let error = config("llama", &[&format!("lora.path={path}")]).unwrap_err();
        error.to_string().replace(&path.to_string(), "DIR")
    };
    let none = config("llama", &[&format!("lora.path={path}")]).unwrap_err();
    assert_eq!(
        none.to_string().replace(&path.to_string(), "DIR"),
        "`DIR` has no adapters: PEFT's folders have adapter_config.json and adapter_model.safetensors"
    );
    for (described, message) in [
        (
            r#"{"peft_type": "IA3"}"#,
            "peft_type is \"IA3\", it must be `LORA`",
        ),
        (
            r#"{"peft_type": "LORA", "use_dora": true}"#,
            "use_dora is true, it must be false",
        ),
        (
            r#"{"peft_type": "LORA", "bias": "all"}"#,
            "bias is \"all\", it must be `none`",
        ),
        (
            r#"{"peft_type": "LORA", "rank_pattern": {"q_proj": 2}}"#,
            "rank_pattern is {\"q_proj\":2}, it must be empty",
        ),
        (
            r#"{"peft_type": "LORA"}"#,
            "target_modules is missing, it must be a list of names",
        ),
        (
            r#"{"peft_type": "LORA", "target_modules": ["qq"], "r": 2}"#,
            "target_modules names `qq`; this model has self_attn.q_proj, self_attn.k_proj, self_attn.v_proj, \
             self_attn.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj",
        ),
        (
            r#"{"peft_type": "LORA", "target_modules": ["q_proj"], "r": 0}"#,
            "r is 0, it must be 1 or more",
        ),
    ] {
        assert_eq!(
            refused(described),
            format!("`DIR/adapter_config.json`: {message}")
        );
    }
}

#[test]
fn adapters_whose_tensors_do_not_fit_are_told_by_name() {
    let path = folder("llama").join("lora");
    let path = path.display();
    let rank = config("llama", &["lora.rank=2", &format!("lora.path={path}")]).unwrap();
    let count = compose::model(&rank).unwrap().names().len();
    let Err(error) = compose::stages(&rank, &[count]) else {
        panic!("it has other shapes");
    };
    let text = error.to_string();
    let start =
        "does not have the tensors of its adapter_config.json:\n  base_model.model.model.layers.0.self_attn.";
    assert!(text.contains(&start[..60]), "{text}");
    assert!(
        text.contains("q_proj.lora_A.weight is [3, 32], the model has [2, 32]"),
        "{text}"
    );
}
