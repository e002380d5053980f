//! Compiled kernels are kept on disk, and what is damaged there is compiled again.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;

/// The file of compiled kernels.
fn file(machine: &Machine) -> PathBuf {
    let folder = machine.path("home/.cache/pipewright");
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|file| file.extension().is_some_and(|end| end == "cubin")).unwrap();
    assert!(files.all(|other| other.extension().is_none_or(|end| end != "partial")));
    file
}

#[test]
fn kernels_that_were_damaged_on_disk_are_compiled_again() {
    let Some(mut machine) = emulated() else { return };
    machine.variables.push(("PIPEWRIGHT_EMULATOR_OPTIMIZE", "-O0".into()));
    let train = |machine: &Machine, name: &str| {
        let name = format!("train.name={name}");
        let gpu = set(&[&name, "pipeline.devices=cuda:0", "pipeline.dtype=f32"]);
        machine.run(&[&["train", "my.toml", "--steps", "1"], &gpu[..]].concat()).done();
    };
    train(&machine, "first");
    let whole = fs::read(file(&machine)).unwrap();
    // A disk was full, or somebody changed the file.
    fs::write(file(&machine), &whole[..whole.len() / 2]).unwrap();
    train(&machine, "second");
    assert_eq!(fs::read(file(&machine)).unwrap().len(), whole.len());
    // The file is whole, and the driver refuses what is in it.
    let mut hash = DefaultHasher::new();
    b"no kernels".hash(&mut hash);
    let foreign = [&b"no kernels"[..], &hash.finish().to_le_bytes()].concat();
    fs::write(file(&machine), &foreign).unwrap();
    train(&machine, "third");
    assert_eq!(fs::read(file(&machine)).unwrap().len(), whole.len());
}
