//! What the guide shows is what happens: its commands print what the guide prints below them, and its configs
//! are accepted.

mod readme;
mod shown;
mod which_parallelism;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use pipewright::plan::{Costs, RankSimulation, Simulation, StageCost, simulate};
use pipewright::schedule::{LinkKind, Schedule};
use pipewright_cli::config::Config;

/// A fenced block of a page: its language, its text and the line it begins on.
struct Block {
    page: String,
    line: usize,
    language: String,
    text: String,
}

#[test]
fn plan_check_and_refusals_print_what_the_guide_shows() {
    let blocks = blocks();
    let mut shown = 0;
    let pairs = blocks.windows(2).filter(|pair| pair[0].page == pair[1].page);
    for pair in pairs.filter(|pair| pair[1].language == "text") {
        let Some(arguments) = pair[0].text.strip_prefix("$ pipewright ") else {
            continue;
        };
        if arguments.contains(" > ") {
            continue;
        }
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let refused = pair[1].text.starts_with("error: ");
        if !refused && !["plan", "check"].contains(&arguments[0]) {
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

#[test]
fn the_command_line_reference_lists_every_option_and_no_other() {
    let page = fs::read_to_string(root().join("book/src/command-line.md")).expect("the page is there");
    let help = pipewright(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.split_whitespace().next());
    let commands: Vec<&str> = commands.filter(|name| *name != "help").collect();
    assert!(commands.contains(&"train"), "{help}");
    for command in commands {
        let heading = format!("## `pipewright {command}");
        let start =
            page.find(&heading).unwrap_or_else(|| panic!("book/src/command-line.md has no {heading}"));
        let part = page[start..].split("\n## ").next().expect("at least the heading");
        let listed: BTreeSet<&str> = part.split("\n| `").skip(1).map(first_word).collect();
        let help = pipewright(&[command, "--help"]);
        let options = help.lines().map(str::trim_start).filter_map(|line| line.split_once("--"));
        let options = options.filter(|(before, _)| before.is_empty() || *before == "-h, ");
        let known: BTreeSet<&str> =
            options.map(|(_, rest)| first_word(rest)).filter(|name| *name != "help").collect();
        let listed: BTreeSet<&str> = listed.iter().filter_map(|name| name.strip_prefix("--")).collect();
        assert_eq!(listed, known, "{command}");
    }
}

/// The text before the first character that cannot be part of an option's name.
fn first_word(text: &str) -> &str {
    text.split([' ', '`', '=', ',']).next().unwrap_or(text)
}

/// What the command prints to standard output, run from the root.
fn pipewright(arguments: &[&str]) -> String {
    let mut command = Command::cargo_bin("pipewright").expect("the command is built");
    let output = command.args(arguments).current_dir(root()).output().expect("the command runs");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_pictures_that_the_guide_shows_are_what_the_commands_above_them_draw() {
    let mut shown = 0;
    for block in blocks() {
        let drawn = block.text.trim_end().split_once(" --format svg > ");
        let Some((command, file)) = drawn else {
            continue;
        };
        let arguments = command.trim_start_matches("$ pipewright ").split(' ');
        let printed = pipewright(&arguments.chain(["--format", "svg"]).collect::<Vec<_>>());
        let place = format!("{}:{}: book/src/img/{file}", block.page, block.line);
        let kept = fs::read_to_string(root().join("book/src/img").join(file)).expect(&place);
        assert!(kept == printed, "{place} is not what its command draws now: run scripts/draw_guide.sh");
        shown += 1;
    }
    assert!(shown >= Schedule::names().count(), "the guide draws every schedule");
}

#[test]
fn every_link_and_picture_of_a_page_leads_to_a_file_and_a_heading() {
    for path in pages() {
        let prose = prose(&path);
        let links = prose.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let there = match file {
                "" => path.clone(),
                file => path.parent().expect("a folder").join(file),
            };
            assert!(there.exists(), "{}: {link}", path.display());
            let known = heading.is_empty() || headings(&there).contains(heading);
            assert!(known, "{}: {link}", path.display());
        }
    }
}

/// A page without its fenced blocks.
fn prose(path: &Path) -> String {
    let page = fs::read_to_string(path).expect("a page is text");
    page.split("```").step_by(2).collect()
}

/// The headings of a page, as links name them.
fn headings(path: &Path) -> BTreeSet<String> {
    let prose = prose(path);
    let titles = prose.lines().filter(|line| line.starts_with('#'));
    let named = titles.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let kept = |sign: &char| sign.is_alphanumeric() || "-_".contains(*sign);
        title.chars().filter(kept).collect()
    });
    named.collect()
}

#[test]
fn the_planned_tables_of_the_chapter_of_figures_hold() {
    let page =
        fs::read_to_string(root().join("book/src/schedules-in-figures.md")).expect("the page is there");
    for (ranks, micro_batches) in [(4, 16), (8, 32)] {
        let heading = format!("\n{ranks} ranks, {micro_batches} micro-batches:\n");
        let (_, part) = page.split_once(&heading).expect(&heading);
        let table = part.split("\n\n").next().expect("a table");
        for name in Schedule::names() {
            let [free, kept] = [0.0, 1.0].map(|pending| planned(name, ranks, micro_batches, pending));
            let percent = |share: f64| format!("{:.1} %", 100.0 * share);
            let row = format!(
                "| `{name}` | {} | {} | {} | {} | {} |",
                percent(free.bubble_makespan),
                percent(free.bubble_span),
                most(&free, |rank| rank.peak_activations),
                percent(kept.bubble_makespan),
                most(&kept, |rank| rank.peak_memory),
            );
            assert!(table.contains(&row), "book/src/schedules-in-figures.md lacks {row}");
        }
    }
}

fn planned(name: &str, ranks: u32, micro_batches: u32, pending: f64) -> Simulation {
    let share = StageCost { pending, ..StageCost::default() };
    let costs = Costs::share(share, 0.0).expect("costs");
    let schedule = Schedule::make(name, ranks, None, micro_batches, &costs).expect(name);
    simulate(&schedule, &costs, LinkKind::Buffered).expect(name)
}

fn most(simulation: &Simulation, of: fn(&RankSimulation) -> f64) -> f64 {
    simulation.ranks.iter().map(of).fold(0.0, f64::max)
}

#[test]
fn the_configs_that_the_guide_shows_are_accepted() {
    let shown: Vec<Block> = blocks().into_iter().filter(|block| block.language == "toml").collect();
    assert!(shown.len() >= 4, "the guide shows configs; found only {}", shown.len());
    for block in shown {
        let name = format!("{}:{}", block.page, block.line);
        let needs_feature = block.text.contains("\"parquet\"") && !cfg!(feature = "parquet");
        let needs_folder = block.text.contains("models/smollm2");
        if !needs_folder && !needs_feature {
            Config::parse(&name, &block.text, &[], &[]).expect(&name);
        }
    }
}

/// With the variable `PIPEWRIGHT_WRITE`, the tables are written.
#[test]
fn the_config_reference_is_the_table_of_keys() {
    let path = root().join("book/src/config.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let mut wanted = page.clone();
    for (section, rows) in Config::reference() {
        let table = format!("## `[{section}]`\n");
        let start = wanted.find(&table).unwrap_or_else(|| panic!("no {table}"));
        let start = start + wanted[start..].find("| --- |").expect("a table");
        let start = start + wanted[start..].find('\n').expect("rows") + 1;
        let rest = &wanted[start..];
        let end = start + rest.find("\n\n").map_or(rest.len(), |end| end + 1);
        wanted.replace_range(start..end, &rows);
    }
    if std::env::var_os("PIPEWRIGHT_WRITE").is_some() {
        fs::write(&path, &wanted).expect("the page is written");
    } else {
        assert_eq!(page, wanted, "PIPEWRIGHT_WRITE=1 cargo test --test guide reference writes the tables");
    }
}

/// All fenced blocks of the guide and the README, in order.
fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|path| blocks_of(path)).collect()
}

/// The pages of the guide, and the README.
fn pages() -> Vec<PathBuf> {
    let pages = fs::read_dir(root().join("book/src")).expect("the guide is there");
    let mut paths: Vec<PathBuf> = pages.map(|page| page.expect("a page").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths.push(root().join("README.md"));
    paths
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
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
