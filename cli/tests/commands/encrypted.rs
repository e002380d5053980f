//! Encrypted checkpoints, through the commands.

use super::*;

/// A folder with a text, a config and a key.
fn place() -> Place {
    let place = Place::new();
    write_key(&place, "key.txt", "3a");
    place.write("my.toml", CONFIG.replace("[checkpoint]\n", "[checkpoint]\nkey_file = 'key.txt'\n"));
    place
}

fn write_key(place: &Place, name: &str, byte: &str) {
    use std::os::unix::fs::PermissionsExt;
    place.write(name, byte.repeat(32));
    fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

fn with(place: &Place, variable: &str, value: &str, args: &[&str]) -> Run {
    Run(place.command(args).env(variable, value).output().unwrap())
}

const ENCRYPTED: &[u8] = b"pwcrypt1";

fn is_encrypted(place: &Place, checkpoint: &str) -> bool {
    let files = ["model.safetensors", "optimizer.safetensors", "state.json"];
    let starts = files.map(|file| {
        fs::read(place.path("runs/small/checkpoints").join(checkpoint).join(file))
            .unwrap()
            .starts_with(ENCRYPTED)
    });
    assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
    starts[0]
}

#[test]
fn every_command_reads_the_checkpoints_of_a_run_with_the_key_that_it_names() {
    let place = place();
    let hash = place.run(&["train", "my.toml", "--weights-hash", "--steps", "4"]).done().hash();
    assert!(is_encrypted(&place, "step-00000004"));
    has(&place.run(&["verify", "runs/small"]).done().stdout(), &["every byte is as it was saved"]);
    place.run(&["evaluate", "runs/small"]).done();
    place.run(&["sample", "runs/small/checkpoints/step-00000004", "--tokens", "3"]).done();
    place.run(&["export", "runs/small", "exported"]).done();
    let resumed = place.run(&["train", "--resume", "--run-dir", "runs/small", "--weights-hash"]).done();
    let plain = Place::new();
    assert_eq!(resumed.hash(), plain.run(&["train", "my.toml", "--weights-hash"]).done().hash());
    assert_ne!(resumed.hash(), hash);
    assert!(!is_encrypted(&plain, "step-00000006"));
}

#[test]
fn a_key_may_come_from_the_environment_for_example_from_a_command() {
    let place = Place::new();
    const KEY: &str = "PIPEWRIGHT_KEY";
    let key = "5b".repeat(32);
    with(&place, KEY, &key, &["train", "my.toml"]).done();
    assert!(is_encrypted(&place, "step-00000006"));
    with(&place, KEY, &key, &["verify", "runs/small"]).done();
    let said = place.run(&["verify", "runs/small/checkpoints/step-00000006"]).stderr();
    has(&said, &["step-00000006/state.json: it is encrypted, and there is no key: name the file"]);
    let said = with(&place, KEY, &"5c".repeat(32), &["sample", "runs/small"]).refused();
    has(&said, &["it is encrypted with another key"]);
    let said = with(&place, KEY, "no key", &["train", "my.toml", "--resume"]).refused();
    has(&said, &["PIPEWRIGHT_KEY is no key of checkpoints: 64 hexadecimal digits"]);
    write_key(&place, "key.txt", "5b");
    with(&place, "PIPEWRIGHT_CHECKPOINT__KEY_FILE", "key.txt", &["verify", "runs/small"]).done();
    // Without a key, the run does not go on.
    let said = place.run(&["train", "my.toml", "--resume", "--set", "train.steps=7"]).refused();
    has(&said, &["it is encrypted, and there is no key"]);
}

#[test]
fn a_copy_is_encrypted_and_a_run_goes_on_from_it() {
    let place = place();
    let copies = format!("checkpoint.copy_to={}", place.path("copies").display());
    place.run(&["train", "my.toml", "--steps", "4", "--set", &copies]).done();
    fs::remove_dir_all(place.path("runs")).unwrap();
    let from = format!("file://{}", place.path("copies").display());
    place.run(&["train", "my.toml", "--resume", &from]).done();
    assert!(is_encrypted(&place, "step-00000006"));
}

#[test]
fn a_key_file_that_is_none_is_refused() {
    let place = place();
    let refused = || place.run(&["train", "my.toml"]).refused();
    place.write("key.txt", "00".repeat(31));
    has(&refused(), &["checkpoint.key_file: `key.txt` is no key of checkpoints: 64 hexadecimal digits"]);
    fs::remove_file(place.path("key.txt")).unwrap();
    has(&refused(), &["checkpoint.key_file: cannot read `key.txt`: No such file"]);
    place.write("key.txt", "3a".repeat(32));
    has(&refused(), &["checkpoint.key_file: others can read `key.txt` (its mode is 0"]);
}
