//! The commands of the README, one after the other, from its first to the last one before Rust.

use std::process::Command;

use serde_json::{Value, json};

use super::root;
use super::*;

/// Shorter than the README's: few steps, and of the stand-in model short sequences.
const SHORTER: &str = " --steps 2 --set data.seq=32";

/// What needs a network or builds the program again, and what builds and runs the program.
const ELSEWHERE: [&str; 3] = ["cargo test", "cargo install", "hf download"];
const BUILT: &str = "cargo run --release --";

#[test]
fn the_commands_of_the_readme_work_in_its_order() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let (first, _) = readme.split_once("## From Rust").expect("the part on Rust");
    let commands: Vec<&str> = first.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let place = tempfile::tempdir().expect("a folder");
    copy(&root().join("examples"), &place.path().join("examples"));
    let download = commands.iter().find(|command| command.starts_with("hf download"));
    let folder = download.and_then(|command| command.split_once("--local-dir ")).expect("a download").1;
    stand_in(&place.path().join(folder.trim()));
    let mut run = 0;
    for command in commands {
        if !ELSEWHERE.iter().any(|elsewhere| command.starts_with(elsewhere)) {
            let shorter = if command.contains(" train") { SHORTER } else { "" };
            let (command, _) = command.split_once(" #").unwrap_or((command, ""));
            succeeds(place.path(), &format!("{}{shorter}", command.replace(BUILT, "pipewright")));
            run += 1;
        }
    }
    assert!(run >= 6, "{run} commands");
}

fn succeeds(place: &Path, command: &str) {
    let built = Path::new(env!("CARGO_BIN_EXE_pipewright"));
    let path = format!(
        "{}:{}",
        built.parent().expect("a folder").display(),
        std::env::var("PATH").expect("a shell has one")
    );
    let shell = Command::new("sh").args(["-c", command]).current_dir(place).env("PATH", path).output();
    let output = shell.expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
        }
    }
}

/// A small model whose tokens are characters of ASCII, the line break, and the end of a text.
fn stand_in(folder: &Path) {
    copy(&root().join("tests/golden/hf/llama"), folder);
    let characters = (b' '..b'~').chain([b'\n']).map(char::from);
    let vocab: serde_json::Map<String, Value> =
        characters.zip(0..).map(|(c, id)| (c.to_string(), json!(id))).collect();
    let end = json!({
        "id": 95, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": { "type": "Fuse" },
        "model": { "type": "BPE", "vocab": vocab, "merges": [] },
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).expect("written");
}
