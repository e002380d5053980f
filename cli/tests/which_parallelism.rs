//! What the guide's page "Which parallelism?" says the planner chooses is what it chooses.

use std::fs;
use std::path::Path;
use std::thread;

use assert_cmd::Command;

/// The commands of the page, each with the choice that is printed below it.
fn cases() -> Vec<(String, String)> {
    let page = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("book/src/which-parallelism.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let pairs = blocks.windows(2).filter_map(|pair| {
        let command = pair[0].strip_prefix("console\n$ pipewright ")?;
        let chosen = pair[1].strip_prefix("text\n")?;
        Some((command.trim().to_owned(), chosen.trim().to_owned()))
    });
    pairs.collect()
}

#[test]
fn the_planner_chooses_what_the_guide_says() {
    let cases = cases();
    assert_eq!(cases.len(), 6);
    let check = |command: &str, chosen: &str| {
        let output = Command::cargo_bin("pipewright")
            .expect("the command is built")
            .args(command.split_whitespace())
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()
            .expect("the command runs");
        let printed = String::from_utf8(output.stdout).expect("text");
        let last = printed.lines().last().unwrap_or_default();
        assert_eq!(last, format!("{chosen}; --out FILE writes it as a config"), "{command}");
    };
    thread::scope(|scope| {
        for (command, chosen) in &cases {
            scope.spawn(|| check(command, chosen));
        }
    });
}
