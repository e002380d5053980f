//! A folder that is written has the model that was read.

use std::collections::BTreeMap;
use std::fs;

use pipewright::pretrained::{Weights, read_config, write};
use pipewright::stages::{Stage, starting_at_zero};

use crate::family::{FAMILIES, folder};

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
        write(&copy, &architecture, |name| Ok(before[name].clone())).expect("written");
        assert_eq!(
            read_config(&copy).expect("its own form"),
            architecture,
            "{family}"
        );
        assert_eq!(read(&copy), before, "{family}");
        let again = write(&copy, &architecture, |name| Ok(before[name].clone()));
        let said = again.expect_err("it is there already").to_string();
        assert!(
            said.ends_with("is there already: name another folder, or remove it"),
            "{said}"
        );
    }
}

#[test]
fn older_files_say_the_same_in_other_words() {
    let scratch = tempfile::tempdir().expect("a folder");
    let newer = folder("llama3");
    let text = fs::read_to_string(newer.join("config.json")).expect("readable");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut scaling = config["rope_parameters"].take();
    config["rope_theta"] = scaling["rope_theta"].take();
    config["rope_scaling"] = scaling;
    fs::write(scratch.path().join("config.json"), config.to_string()).expect("written");
    let [older, newer] = [scratch.path(), &newer].map(|folder| read_config(folder).expect("known"));
    assert_eq!(older, newer);
}
