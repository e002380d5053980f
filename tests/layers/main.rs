//! The source follows the layers of ARCHITECTURE.md: nothing imports upward, and no file or folder is too
//! large.

mod cycles;
mod systems;
mod writers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A top-level module of `src/` or `cli/src/`, its layer, and the others of this layer that it may import.
type Row = (&'static str, u32, &'static [&'static str]);

/// The table of ARCHITECTURE.md.
const TABLE: &[Row] = &[
    ("commands", 9, &[]),
    ("compose", 8, &[]),
    ("config", 7, &[]),
    ("report", 7, &[]),
    ("profile", 6, &[]),
    ("run", 6, &[]),
    ("pipeline", 5, &[]),
    ("actor", 4, &[]),
    ("worker", 3, &[]),
    ("checkpoint", 2, &[]),
    ("pretrained", 2, &[]),
    ("draw", 2, &[]),
    ("fabric", 1, &[]),
    ("data", 1, &[]),
    ("mesh", 0, &[]),
    ("privacy", 0, &[]),
    ("interrupt", 0, &["error", "system"]),
    ("tokenizer", 0, &["error"]),
    ("error", 0, &["situation"]),
    ("situation", 0, &[]),
    ("system", 0, &[]),
    ("ended", 0, &[]),
    ("http", 0, &[]),
    ("store", 0, &["error", "whole"]),
    ("whole", 0, &["error", "system"]),
];

/// The packages below every layer.
const GROUND: [&str; 2] = ["pipewright_schedule", "pipewright_stages"];

const LONGEST_FILE: usize = 600;

const MOST_FILES: usize = 20;

/// In characters: `max_width` of rustfmt, which leaves comments and strings as they are.
const WIDEST_LINE: usize = 110;

/// The files that import each other, all files of a group, and why that is right.
const CYCLIC: &[(&[&str], &str)] = &[(
    &["error", "error/data", "error/launch", "error/pretrained", "error/restart", "error/run", "error/store"],
    "`Error` holds the errors of all parts, and these hold an `Error` as the cause of theirs",
)];

#[test]
fn nothing_imports_upward() {
    let mut faults = Vec::new();
    let sources = ["src", "cli/src"].map(|sources| root().join(sources));
    for file in sources.iter().flat_map(|sources| rust_files(sources)) {
        let relative = file.strip_prefix(root()).expect("under the root").to_owned();
        let Some(module) = module_of(&relative) else {
            continue;
        };
        for (line, import) in imports(&read(&file), "crate::") {
            if let Err(rule) = judge(&module, &import) {
                faults.push(format!("{}:{line}: imports `crate::{import}`: {rule}", relative.display()));
            }
        }
    }
    assert!(faults.is_empty(), "see the layers in ARCHITECTURE.md\n{}", faults.join("\n"));
}

#[test]
fn the_drawing_shows_these_layers() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let mut drawn = Vec::new();
    for line in page.lines() {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, layer, modules, _, _] = columns[..]
            && let Ok(layer) = layer.parse::<u32>()
        {
            drawn.extend(modules.split(", ").map(|module| (module.trim_matches('`').to_owned(), layer)));
        }
    }
    let mut table: Vec<(String, u32)> = TABLE.iter().map(|row| (row.0.to_owned(), row.1)).collect();
    drawn.sort();
    table.sort();
    assert_eq!(drawn, table, "the table of ARCHITECTURE.md and that of this test");
}

#[test]
fn no_files_of_a_module_import_each_other() {
    for (sources, known) in [("src", CYCLIC), ("cli/src", &[])] {
        let known: Vec<&[&str]> = known.iter().map(|(group, _)| *group).collect();
        assert_eq!(
            files(sources).cycles_in_modules(),
            known,
            "the files of {sources} that import each other, and those that may"
        );
    }
}

#[test]
fn in_other_packages_no_files_and_no_modules_import_each_other() {
    for sources in ["mpi/src", "schedule/src", "stages/src"] {
        let files = files(sources);
        assert!(files.cycles().is_empty(), "{sources}: {:?}", files.cycles());
        let modules = files.cycles_of_modules();
        assert!(modules.is_empty(), "{sources}: {modules:?}");
    }
}

/// The files of a package.
fn files(sources: &str) -> cycles::Files {
    let sources = root().join(sources);
    let text = |file: PathBuf| {
        let path = file.strip_prefix(&sources).expect("under it").to_owned();
        (path, read(&file))
    };
    let texts: Vec<(PathBuf, String)> = rust_files(&sources).into_iter().map(text).collect();
    cycles::Files::new(texts.iter().map(|(path, text)| (path.as_path(), text.as_str())))
}

#[test]
fn a_cycle_of_files_is_found_through_what_a_module_hands_on() {
    let found = |texts: &[(&str, &str)]| {
        cycles::Files::new(texts.iter().map(|&(path, text)| (Path::new(path), text))).cycles_in_modules()
    };
    let root = ("a/mod.rs", "mod b;\nmod c;\npub use b::B;\npub(crate) use c::{C, D};\n");
    let (b, c) =
        (("a/b.rs", "use crate::a::{\n    C,\n};\npub struct B;"), ("a/c.rs", "fn c() -> super::b::B {}"));
    assert_eq!(found(&[root, b, c]), [["a/b", "a/c"]]);
    assert_eq!(
        found(&[root, b, ("a/c.rs", "// use crate::a::B;\npub struct C;")]),
        Vec::<Vec<String>>::new()
    );
    let child = ("a/b.rs", "use super::Own;\npub struct B;");
    assert_eq!(found(&[root, child, ("a/c.rs", "")]), [["a", "a/b"]], "what mod.rs defines itself");
    let hands_on = ("lib.rs", "pub mod a;\npub use a::B;");
    let through_root = ("a/c.rs", "use crate::B;\nfn c() {}");
    assert_eq!(found(&[hands_on, root, b, through_root]), [["a/b", "a/c"]]);
    let (uses, visible) = (("a/mod.rs", "mod b;\nuse b::B;"), ("a/b.rs", "pub(in crate::a) struct B;"));
    assert_eq!(found(&[uses, visible]), Vec::<Vec<String>>::new(), "visibility is no import");
}

#[test]
fn no_line_is_wider_than_the_page() {
    let mut faults = Vec::new();
    for file in own_files() {
        for (place, line) in (1..).zip(read(&file).lines()) {
            let width = line.chars().count();
            if width > WIDEST_LINE {
                faults.push(format!("{}:{place}: {width} characters", file.display()));
            }
        }
    }
    assert!(faults.is_empty(), "at most {WIDEST_LINE} characters a line: wrap these\n{}", faults.join("\n"));
}

#[test]
fn no_file_outgrows_its_idea() {
    let faults: Vec<String> = own_files()
        .into_iter()
        .map(|file| (read(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .map(|(lines, file)| format!("{}: {lines} lines, at most {LONGEST_FILE}", file.display()))
        .collect();
    assert!(faults.is_empty(), "one idea a file: split these\n{}", faults.join("\n"));
}

#[test]
fn no_folder_has_too_many_files() {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for sources in ["src", "cli/src", "mpi/src", "schedule/src", "stages/src"] {
        for file in rust_files(&root().join(sources)) {
            *folders.entry(file.with_file_name("")).or_default() += 1;
        }
    }
    folders.retain(|_, files| *files > MOST_FILES);
    assert!(folders.is_empty(), "at most {MOST_FILES} files a folder: {folders:?}");
}

#[test]
fn a_model_of_one_s_own_trains_with_resume_in_fewer_than_60_lines() {
    let example = read(&root().join("examples/run.rs"));
    assert!(example.lines().count() < 60, "{} lines", example.lines().count());
    for part in ["Model::new(", "Resume::", "Validation::", "impl DataSource"] {
        assert!(example.contains(part), "{part}");
    }
}

#[test]
fn a_model_of_candle_s_trains_in_at_most_40_lines() {
    let example = read(&root().join("candle/examples/spiral.rs"));
    assert!(example.lines().count() <= 40, "{} lines", example.lines().count());
    for part in ["unit(", "split(2)", "impl DataSource"] {
        assert!(example.contains(part), "{part}");
    }
}

#[test]
fn the_reader_of_imports_sees_all_forms_and_the_judge_refuses() {
    let source = "use crate::id::Rank;\n// use crate::cli::Command;\nuse crate::{\n    plan::{Costs, \
        cli},\n    data,\n};\nlet a = crate::worker::run(my_crate::x);";
    let found: Vec<(usize, String)> = imports(source, "crate::");
    let expected = [(1, "id"), (4, "plan"), (5, "data"), (7, "worker")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
    assert!(judge("worker", "schedule").is_ok() && judge("data", "nearest").is_ok());
    assert!(judge("worker", "pipeline").is_err(), "upward");
    assert!(judge("fabric", "data").is_err(), "beside");
    assert!(judge("worker", "Pipeline").is_err(), "upward, through the root");
    assert!(
        judge("commands", "Pipeline").is_ok()
            && judge("data", "stages").is_ok()
            && judge("data", "Error").is_ok()
    );
}

/// Whether `module` may import `import`. The error is the rule that it breaks.
fn judge(module: &str, import: &str) -> Result<(), String> {
    let home = home(import);
    if module == home || GROUND.contains(&home.as_str()) {
        return Ok(());
    }
    let layer_of = |name: &str| {
        let row = TABLE.iter().find(|row| row.0 == name);
        row.ok_or_else(|| format!("`{name}` has no layer: give it one in ARCHITECTURE.md and in this test"))
    };
    let (&(_, from, beside), &(_, to, _)) = (layer_of(module)?, layer_of(&home)?);
    if to < from || (to == from && beside.contains(&home.as_str())) {
        return Ok(());
    }
    Err(format!("`{module}` is on layer {from}, `{home}` on layer {to}: imports go down only"))
}

/// The module that defines a name in the crate's root: the name itself, or the module from which `lib.rs`
/// re-exports it.
fn home(import: &str) -> String {
    let root = read(&root().join("src/lib.rs"));
    let taken = root
        .split(';')
        .map(|item| item.trim_start().trim_start_matches("pub "))
        .filter_map(|item| item.strip_prefix("use "));
    let mut taken = taken.filter_map(|path| path.split_once([':', ' ']));
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let source = taken.find(|(_, names)| names.split(|letter| !is_word(letter)).any(|name| name == import));
    source.map_or(import, |(module, _)| module).to_owned()
}

/// The first name after each `prefix` outside comments, with its line. Each member of a group counts.
fn imports(source: &str, prefix: &str) -> Vec<(usize, String)> {
    let code: String =
        source.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    let mut found = Vec::new();
    for (start, _) in code.match_indices(prefix) {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        if code[..start].ends_with(is_word) {
            continue;
        }
        for at in member_starts(&code, start + prefix.len()) {
            let name: String = code[at..].chars().take_while(|&letter| is_word(letter)).collect();
            found.push((code[..at].lines().count(), name));
        }
    }
    found
}

/// Where the names start: at `at` itself or, if a group starts there, at each of its direct members.
fn member_starts(code: &str, at: usize) -> Vec<usize> {
    if !code[at..].starts_with('{') {
        return vec![at];
    }
    let (mut depth, mut wanted, mut starts) = (0, false, Vec::new());
    for (offset, letter) in code[at..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if wanted && !letter.is_whitespace() => starts.push(at + offset),
            _ => {}
        }
        let separates = depth == 1 && (letter == ',' || offset == 0);
        wanted = separates || (wanted && letter.is_whitespace());
        if depth == 0 {
            break;
        }
    }
    starts
}

/// The top-level module of a file. `None` for the crate roots.
fn module_of(relative: &Path) -> Option<String> {
    let first = relative.components().skip_while(|part| part.as_os_str() != "src").nth(1)?;
    let name = Path::new(first.as_os_str()).file_stem()?.to_str()?;
    (!["lib", "main", "guide"].contains(&name)).then(|| name.to_owned())
}

/// All files of our packages.
fn own_files() -> Vec<PathBuf> {
    let folders = ["src", "cli", "mpi", "schedule", "stages", "candle", "tests", "examples", "benches"];
    let files = folders.iter().flat_map(|folder| rust_files(&root().join(folder)));
    files.collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    files
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
