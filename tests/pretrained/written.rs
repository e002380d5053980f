//! A folder that is written has the model that was read.

use pipewright::pretrained::write;
use pipewright::stages::{Training, starting_at_zero};

use super::*;

#[test]
fn what_is_written_is_read_with_equal_weights_and_settings() {
    let scratch = tempfile::tempdir().expect("a folder");
    for family in FAMILIES {
        let architecture = read_config(&folder(family)).expect("a known model");
        let read = |folder: &std::path::Path| {
            let weights = Weights::open(folder, &architecture).expect("all tensors");
            let mut model =
                starting_at_zero(|| architecture.model().expect("possible sizes").whole()).expect("built");
            let mut values = BTreeMap::new();
            for parameter in model.parameters() {
                weights.read(parameter).expect("readable");
                values.insert(parameter.name().to_owned(), parameter.value.to_vec());
            }
            values
        };
        let before = read(&folder(family));
        let copy = scratch.path().join(family);
        write(&copy, &architecture, &[], |name| Ok(before[name].clone())).expect("written");
        assert_eq!(read_config(&copy).expect("its own form"), architecture, "{family}");
        assert_eq!(read(&copy), before, "{family}");
        let again = write(&copy, &architecture, &[], |name| Ok(before[name].clone()));
        let said = again.expect_err("it is there already").to_string();
        assert!(said.ends_with("is there already: name another folder, or remove it"), "{said}");
    }
}

/// Frozen weights are not copied out of their file. A user that changes them all the same changes a copy.
#[test]
fn frozen_weights_are_those_of_the_file() {
    for family in FAMILIES {
        let architecture = read_config(&folder(family)).expect("a known model");
        let weights = Weights::open(&folder(family), &architecture).expect("all tensors");
        let values = |frozen| {
            let mut model = architecture.model().expect("possible sizes").whole().expect("built");
            let parameters = model.parameters().into_iter().map(|parameter| {
                let training = parameter.training();
                parameter.train_by(Training { frozen, ..training });
                weights.read(parameter).expect("readable");
                let read = parameter.value.to_vec();
                parameter.value.fill(7.0);
                assert!(parameter.value.iter().all(|&number| number == 7.0));
                read
            });
            parameters.collect::<Vec<_>>()
        };
        assert_eq!(values(true), values(false), "{family}");
        assert_eq!(values(true), values(false), "{family}, again");
    }
}

#[test]
fn older_files_say_the_same_in_other_words() {
    let scratch = tempfile::tempdir().expect("a folder");
    let newer = folder("llama3");
    let text = fs::read_to_string(newer.join("config.json")).expect("readable");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut scaling = config["rope_parameters"].take();
    let theta = scaling.as_object_mut().and_then(|keys| keys.remove("rope_theta"));
    config["rope_theta"] = theta.expect("it has one");
    config["rope_scaling"] = scaling;
    fs::write(scratch.path().join("config.json"), config.to_string()).expect("written");
    let [older, newer] = [scratch.path(), &newer].map(|folder| read_config(folder).expect("known"));
    assert_eq!(older, newer);
}

/// A copy of a folder whose experts' matrices are stacked in one tensor, as transformers writes them without
/// `save_original_format`.
fn fused(copy: &Path) {
    fs::copy(folder("mixtral").join("config.json"), copy.join("config.json")).expect("copied");
    let bytes = fs::read(folder("mixtral").join("model.safetensors")).expect("readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("whole");
    let mut all: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    let mut add = |name: String, dims: Vec<usize>, more: &[u8]| {
        all.entry(name).or_insert((dims, Vec::new())).1.extend(more);
    };
    for name in tensors.names() {
        let tensor = tensors.tensor(name).expect("it has this one");
        if !name.contains(".experts.") {
            let name = name.replace(".block_sparse_moe.", ".mlp.");
            add(name, tensor.shape().to_vec(), tensor.data());
        }
    }
    let (experts, dim, ffn) = (4, 32, 24);
    for (block, expert) in (0..2).flat_map(|block| (0..experts).map(move |expert| (block, expert))) {
        for (part, fused, dims) in [
            ("w1", "gate_up_proj", [experts, 2 * ffn, dim]),
            ("w3", "gate_up_proj", [experts, 2 * ffn, dim]),
            ("w2", "down_proj", [experts, dim, ffn]),
        ] {
            let start = format!("model.layers.{block}");
            let one = format!("{start}.block_sparse_moe.experts.{expert}.{part}.weight");
            let tensor = tensors.tensor(&one).expect("it has this one");
            add(format!("{start}.mlp.experts.{fused}"), dims.to_vec(), tensor.data());
        }
    }
    let views = all.iter().map(|(name, (dims, bytes))| {
        let view = TensorView::new(Dtype::F32, dims.clone(), bytes).expect("the bytes fill it");
        (name, view)
    });
    let bytes = safetensors::serialize(views, None).expect("it can be written");
    fs::write(copy.join("model.safetensors"), bytes).expect("written");
}

#[test]
fn experts_that_are_saved_together_are_the_same() {
    let scratch = tempfile::tempdir().expect("a folder");
    fused(scratch.path());
    let newer = fs::read(scratch.path().join("model.safetensors")).expect("readable");
    let names = SafeTensors::deserialize(&newer).expect("whole").names().len();
    assert_eq!(names, 3 + 2 * (4 + 2 + 1 + 2), "no expert has a tensor of its own");
    let [apart, together] = [&folder("mixtral"), scratch.path()].map(|folder| {
        let architecture = read_config(folder).expect("a known model");
        let weights = Weights::open(folder, &architecture).expect("all tensors");
        let mut model = architecture.model().and_then(|model| Ok(model.whole()?)).expect("built");
        for parameter in model.parameters() {
            weights.read(parameter).expect("readable");
        }
        let values = |parameter: &mut Parameter| (parameter.name().to_owned(), parameter.value.to_vec());
        model.parameters().into_iter().map(values).collect::<Vec<_>>()
    });
    assert_eq!(apart, together);
}
