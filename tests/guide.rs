//! What the guide shows is what happens: its commands print what stands under them, its configs are accepted.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

/// A fenced block of a page: its language, its text and the line it begins on.
struct Block {
    page: String,
    line: usize,
    language: String,
    text: String,
}

#[test]
fn plan_and_check_print_what_the_guide_shows() {
    let blocks = blocks();
    let mut shown = 0;
    for pair in blocks.windows(2).filter(|pair| pair[1].language == "text") {
        let Some(arguments) = pair[0].text.strip_prefix("$ pipewright ") else { continue };
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        if !["plan", "check"].contains(&arguments[0]) {
            continue;
        }
        let mut command = Command::cargo_bin("pipewright").expect("the command is built");
        let output = command.args(&arguments).current_dir(root()).output().expect("the command runs");
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        let place = format!("{}:{}: {}", pair[1].page, pair[1].line, arguments.join(" "));
        assert_eq!(pair[1].text.trim_end(), printed.trim_end(), "{place}");
        shown += 1;
    }
    assert!(shown >= 4, "the guide shows schedules; found only {shown}");
}

/// All fenced blocks of the guide and the README, in order.
fn blocks() -> Vec<Block> {
    let pages = fs::read_dir(root().join("book/src")).expect("the guide is there");
    let mut paths: Vec<PathBuf> = pages.map(|page| page.expect("a page").path()).collect();
    paths.sort();
    paths.push(root().join("README.md"));
    paths.iter().flat_map(|path| blocks_of(path)).collect()
}

fn blocks_of(path: &Path) -> Vec<Block> {
    let page = path.strip_prefix(root()).expect("under the root").display().to_string();
    let text = fs::read_to_string(path).expect("a page is text");
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (line, content) in (1..).zip(text.lines()) {
        match (content.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let language = language.to_owned();
                open = Some(Block { page: page.clone(), line, language, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text += &format!("{content}\n"),
            (None, None) => {}
        }
    }
    blocks
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
