//! What the guide's page "Which parallelism?" says the planner chooses is what it chooses.

use std::thread;

use super::*;

/// The commands of the page, each with the choice that is printed below it.
fn cases() -> Vec<(String, String)> {
    let page = fs::read_to_string(root().join("book/src/which-parallelism.md")).expect("the page is there");
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
        let printed = pipewright(&command.split_whitespace().collect::<Vec<_>>());
        let last = printed.lines().last().unwrap_or_default();
        assert_eq!(last, format!("{chosen}; --out FILE writes it as a config"), "{command}");
    };
    thread::scope(|scope| {
        for (command, chosen) in &cases {
            scope.spawn(|| check(command, chosen));
        }
    });
}
