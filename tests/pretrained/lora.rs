//! Adapters in PEFT's form: what they compute, how they train, how they are read and written.

use pipewright::pretrained::{Adapters, Target, open_adapters, read_adapters, write_adapters};
use pipewright_cli::compose;

use super::*;

/// The families that have adapters: which layers, by our names, and the blocks and layers by theirs.
const FAMILIES: [(&str, &[&str]); 3] = [
    ("llama", &["h.*.attn.q", "h.*.attn.v", "h.*.mlp.down"]),
    ("gpt2", &["h.*.attn.c_attn", "h.*.mlp.c_fc"]),
    // Its head has other weights than the folder of the model. It is scaled by alpha / sqrt(rank).
    ("mistral", &["h.*.attn.q", "lm_head"]),
];

/// A config for a family's folder, with more settings.
fn config(family: &str, more: &[&str]) -> pipewright_cli::Result<Config> {
    let text =
        format!("[model]\npath = {:?}\n[data]\npath = \"builtin:shakespeare\"\nseq = 12\n", folder(family));
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
    if family != "gpt2" {
        for (ours, theirs) in [
            ("h.0.", "model.layers.0."),
            ("h.1.", "model.layers.1."),
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
        let alpha = if family == "mistral" { 6.0 * 3.0_f64.sqrt() } else { 6.0 };
        assert_eq!((lora.rank, lora.alpha, lora.dropout), (3, alpha, 0.0), "{family}");
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
                let at = ForwardContext { step: 0, micro_batch, mode };
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
            let adapters =
                [("llama", 12), ("gpt2", 8), ("mistral", 6)].into_iter().find(|one| one.0 == family);
            assert_eq!(Some((family, gradients.len())), adapters, "only adapters");
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
        let mut down = Parameter::new(format!("{target}.lora_a.weight"), &[rank, *inputs], Init::Zeros, 0);
        let mut up = Parameter::new(format!("{target}.lora_b.weight"), &[*outputs, rank], Init::Zeros, 0);
        weights.read(&mut down).unwrap();
        weights.read(&mut up).unwrap();
        [down.value.to_vec(), up.value.to_vec()]
    };
    let adapters = targets.iter().flat_map(both);
    let head = targets.iter().find(|(target, _)| target == "lm_head");
    let head = head.map(|(_, [inputs, outputs])| {
        let mut head = Parameter::new("lm_head.weight", &[*outputs, *inputs], Init::Zeros, 0);
        weights.read(&mut head).unwrap();
        head.value.to_vec()
    });
    adapters.chain(head).collect()
}

#[test]
fn written_adapters_are_read_again() {
    for (family, patterns) in FAMILIES {
        let (config, of) = (with_adapters(family), folder(family));
        let targets = compose::adapted(&config).unwrap();
        let numbers = read(&of.join("lora"), &of, 3, &targets);
        let names = targets
            .iter()
            .flat_map(|(target, _)| ["a", "b"].map(|which| format!("{target}.lora_{which}.weight")))
            .chain(["lm_head.weight".to_owned()]);
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
        let again = read_adapters(&folder, architecture.base()).unwrap();
        let kept = |of: &Adapters| (of.rank, of.alpha, of.dropout);
        assert_eq!(kept(&again), kept(&adapters), "{family}");
        let text = std::fs::read_to_string(folder.join("adapter_config.json")).unwrap();
        has(&text, &["\"base_model_name_or_path\": \"base\""]);
    }
}

#[test]
fn a_folder_without_adapters_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let none = config("llama", &[&format!("lora.path={path}")]).unwrap_err();
    assert_eq!(
        none.to_string().replace(&path.to_string(), "DIR"),
        "`DIR` has no adapters: PEFT's folders have adapter_config.json and adapter_model.safetensors (files \
         of PyTorch, adapter_model.bin, are not read)"
    );
}

/// Who names a folder and some of what it decides would train with other numbers than PEFT.
#[test]
fn a_folder_of_adapters_decides_all_of_the_section_or_nothing() {
    let path = folder("llama").join("lora");
    let path = format!("lora.path={}", path.display());
    for set in ["rank=3", "alpha=6", "dropout=0.0", "targets=[\"*\"]"] {
        let error = config("llama", &[&format!("lora.{set}"), &path]).unwrap_err();
        let key = set.split('=').next().unwrap();
        has(&error, &[&format!("lora.{key}"), "lora.path"]);
    }
}

#[test]
fn adapters_whose_tensors_do_not_fit_are_told_by_name() {
    let path = folder("llama").join("lora");
    let path = path.display();
    let path = format!("lora.path={path}");
    let all = ["lora.rank=2", "lora.alpha=6", "lora.dropout=0", "lora.targets=[\"*.attn.q\"]", &path];
    let rank = config("llama", &all).unwrap();
    let count = compose::model(&rank).unwrap().names().len();
    let Err(error) = compose::stages(&rank, &[count]) else {
        panic!("it has other shapes");
    };
    let text = error.to_string();
    let start =
        "does not have the tensors of its adapter_config.json:\n  base_model.model.model.layers.0.self_attn.";
    assert!(text.contains(&start[..60]), "{text}");
    has(&text, &["q_proj.lora_A.weight is [3, 32], the model has [2, 32]"]);
}

/// A copy of a family's adapters whose tensors have other names, or are there twice. With `halves` the
/// numbers lose their last 16 bits.
fn renamed(family: &str, halves: bool, names: impl Fn(&str) -> Vec<String>) -> tempfile::TempDir {
    let (of, scratch) = (folder(family).join("lora"), tempfile::tempdir().unwrap());
    std::fs::copy(of.join("adapter_config.json"), scratch.path().join("adapter_config.json")).unwrap();
    let bytes = std::fs::read(of.join("adapter_model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut new = Vec::new();
    for (name, tensor) in tensors.iter() {
        let upper = |four: &[u8]| [four[2], four[3]];
        let (dtype, data) = match halves {
            true => (Dtype::BF16, tensor.data().chunks(4).flat_map(upper).collect()),
            false => (Dtype::F32, tensor.data().to_vec()),
        };
        let shape = tensor.shape().to_vec();
        new.extend(names(name).into_iter().map(|name| (name, dtype, shape.clone(), data.clone())));
    }
    let views = new
        .iter()
        .map(|(name, dtype, shape, data)| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let file = safetensors::serialize(views, None).unwrap();
    std::fs::write(scratch.path().join("adapter_model.safetensors"), file).unwrap();
    scratch
}

#[test]
fn tensors_are_read_with_other_names_and_in_16_bits() {
    let short = |name: &str| name.replace("base_model.model.", "");
    let named =
        |name: &str| name.replace(".weight", ".default.weight").replace("base_layer.default", "base_layer");
    for family in ["llama", "mistral"] {
        let (config, of) = (with_adapters(family), folder(family));
        let targets = compose::adapted(&config).unwrap();
        let expected = read(&of.join("lora"), &of, 3, &targets);
        for rename in [&short as &dyn Fn(&str) -> String, &named] {
            let changed = renamed(family, false, |name| vec![rename(name)]);
            assert_eq!(read(changed.path(), &of, 3, &targets), expected, "{family}");
            let twice = renamed(family, false, |name| match rename(name) {
                same if same == name => vec![same],
                other => vec![name.to_owned(), other],
            });
            let error = open_adapters(twice.path(), &read_config(&of).unwrap(), 3, &targets).unwrap_err();
            has(&error, &[" is no part of this model"]);
        }
        let halves = renamed(family, true, |name| vec![name.to_owned()]);
        let upper = |number: &f32| f32::from_bits(number.to_bits() >> 16 << 16);
        let expected: Vec<Vec<f32>> = expected.iter().map(|one| one.iter().map(upper).collect()).collect();
        assert_eq!(read(halves.path(), &of, 3, &targets), expected, "{family}");
    }
}

/// Who has trained the embedding, the head or a bias beside adapters has more than adapters.
#[test]
fn other_tensors_beside_adapters_are_refused_by_name() {
    let (config, of) = (with_adapters("mistral"), folder("mistral"));
    let targets = compose::adapted(&config).unwrap();
    for more in [
        "base_model.model.model.embed_tokens.weight",
        "base_model.model.lm_head.weight",
        "base_model.model.lm_head.modules_to_save.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
    ] {
        let is_head = |name: &str| name.contains("lm_head.base_layer");
        let scratch = renamed("mistral", false, |name| match is_head(name) {
            true => vec![name.to_owned(), more.to_owned()],
            false => vec![name.to_owned()],
        });
        let error = open_adapters(scratch.path(), &read_config(&of).unwrap(), 3, &targets).unwrap_err();
        let end = format!(":\n  {more} is no part of this model");
        assert!(error.to_string().ends_with(&end), "{error}");
    }
}
