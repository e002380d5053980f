//! The layers of ARCHITECTURE.md, held by the source: nothing imports upward, and no file outgrows its idea.

mod cycles;

use std::fs;
use std::path::{Path, PathBuf};

/// A top-level module of `src/`, its layer, and the modules of its own layer that it may import.
type Row = (&'static str, u32, &'static [&'static str]);

/// The table of ARCHITECTURE.md.
const TABLE: &[Row] = &[
    ("cli", 9, &[]),
    ("compose", 8, &[]),
    ("config", 7, &[]),
    ("profile", 6, &[]),
    ("run", 6, &[]),
    ("pipeline", 5, &[]),
    ("actor", 4, &[]),
    ("worker", 3, &[]),
    ("checkpoint", 2, &[]),
    ("plan", 2, &[]),
    ("draw", 2, &[]),
    ("schedule", 1, &[]),
    ("fabric", 1, &[]),
    ("data", 1, &[]),
    ("mesh", 0, &["id", "error"]),
    ("checksum", 0, &[]),
    ("id", 0, &[]),
    ("nearest", 0, &[]),
    ("error", 0, &["id", "checksum"]),
];

/// The ground floor, below every layer.
const GROUND: &str = "pipewright_stages";

const LONGEST_FILE: usize = 400;

/// Modules whose files still import each other, and why. A module leaves this table when its cycles are broken.
const CYCLIC: &[(&str, &str)] = &[
    ("actor", "messages and the runtime name each other"),
    ("checkpoint", "reading and writing take their layout from mod.rs"),
    ("cli", "tune and what it writes"),
    ("data", "sources and the loader take their trait from mod.rs"),
    (
        "error",
        "an error may hold any other, so the parts name `Error`; right as it is",
    ),
    ("fabric", "sockets and the end made of two"),
    ("pipeline", "builder and launch"),
    (
        "plan",
        "`Setting::fit` makes a `Fitting`, which takes a `Setting`",
    ),
    ("worker", "parameters and ties"),
];

#[test]
fn nothing_imports_upward() {
    let mut faults = Vec::new();
    for file in rust_files(&root().join("src")) {
        let relative = file.strip_prefix(root()).expect("under the root").to_owned();
        let Some(module) = module_of(&relative) else {
            continue;
        };
        for (line, import) in imports(&read(&file), "crate::") {
            if let Err(rule) = judge(&module, &import) {
                faults.push(format!(
                    "{}:{line}: imports `crate::{import}`: {rule}",
                    relative.display()
                ));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "see the layers in ARCHITECTURE.md\n{}",
        faults.join("\n")
    );
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
            drawn.extend(
                modules
                    .split(", ")
                    .map(|module| (module.trim_matches('`').to_owned(), layer)),
            );
        }
    }
    let mut table: Vec<(String, u32)> = TABLE.iter().map(|row| (row.0.to_owned(), row.1)).collect();
    drawn.sort();
    table.sort();
    assert_eq!(drawn, table, "the table of ARCHITECTURE.md and that of this test");
}

#[test]
fn no_files_of_a_module_import_each_other() {
    let sources = root().join("src");
    let texts: Vec<(PathBuf, String)> = rust_files(&sources)
        .iter()
        .map(|file| {
            (
                file.strip_prefix(&sources).expect("under src").to_owned(),
                read(file),
            )
        })
        .collect();
    let files = cycles::Files::new(texts.iter().map(|(path, text)| (path.as_path(), text.as_str())));
    let is_known = |group: &[String]| {
        let module = group[0].split('/').next().unwrap_or("");
        CYCLIC.iter().any(|(known, _)| *known == module)
    };
    let faults: Vec<String> = files
        .cycles()
        .into_iter()
        .filter(|group| !is_known(group))
        .map(|group| group.join(", "))
        .collect();
    assert!(
        faults.is_empty(),
        "these files import each other:\n{}",
        faults.join("\n")
    );
}

#[test]
fn a_cycle_of_files_is_found_through_what_a_module_hands_on() {
    let found = |texts: &[(&str, &str)]| {
        cycles::Files::new(texts.iter().map(|&(path, text)| (Path::new(path), text))).cycles()
    };
    let root = (
        "a/mod.rs",
        "mod b;\nmod c;\npub use b::B;\npub(crate) use c::{C, D};\n",
    );
    let (b, c) = (
        ("a/b.rs", "use crate::a::{\n    C,\n};\npub struct B;"),
        ("a/c.rs", "fn c() -> super::b::B {}"),
    );
    assert_eq!(found(&[root, b, c]), [["a/b", "a/c"]]);
    assert_eq!(
        found(&[root, b, ("a/c.rs", "// use crate::a::B;\npub struct C;")]),
        Vec::<Vec<String>>::new()
    );
    let child = ("a/b.rs", "use super::Own;\npub struct B;");
    assert_eq!(
        found(&[root, child, ("a/c.rs", "")]),
        [["a", "a/b"]],
        "what mod.rs defines itself"
    );
}

#[test]
fn the_ground_floor_knows_nothing_of_the_engine() {
    let mut faults = Vec::new();
    for file in rust_files(&root().join("stages")) {
        for (line, import) in imports(&read(&file), "pipewright::") {
            faults.push(format!(
                "{}:{line}: imports `pipewright::{import}`",
                file.display()
            ));
        }
    }
    assert!(
        faults.is_empty(),
        "stages/ may not import the engine\n{}",
        faults.join("\n")
    );
}

#[test]
fn no_file_outgrows_its_idea() {
    let folders = ["src", "stages", "tests", "examples", "benches"];
    let faults: Vec<String> = folders
        .iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
        .map(|file| (read(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .map(|(lines, file)| format!("{}: {lines} lines, at most {LONGEST_FILE}", file.display()))
        .collect();
    assert!(
        faults.is_empty(),
        "one idea a file: split these\n{}",
        faults.join("\n")
    );
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
fn the_reader_of_imports_sees_all_forms_and_the_judge_refuses() {
    let source = "use crate::id::Rank;\n// use crate::cli::Command;\nuse crate::{\n    plan::{Costs, cli},\n    \
                  data,\n};\nlet a = crate::worker::run(my_crate::x);";
    let found: Vec<(usize, String)> = imports(source, "crate::");
    let expected = [(1, "id"), (4, "plan"), (5, "data"), (7, "worker")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
    assert!(judge("worker", "schedule").is_ok() && judge("schedule", "schedule").is_ok());
    assert!(judge("worker", "pipeline").is_err(), "upward");
    assert!(judge("schedule", "data").is_err(), "beside");
    assert!(judge("plan", "fabric").is_err(), "plan sees the schedule only");
    assert!(judge("worker", "Pipeline").is_err(), "upward, through the root");
    assert!(
        judge("cli", "Pipeline").is_ok() && judge("data", "stages").is_ok() && judge("data", "Error").is_ok()
    );
}

/// Whether `module` may import `import`; the error is the rule it breaks.
fn judge(module: &str, import: &str) -> Result<(), String> {
    let home = home(import);
    if module == home || home == GROUND {
        return Ok(());
    }
    let layer_of = |name: &str| {
        let row = TABLE.iter().find(|row| row.0 == name);
        row.ok_or_else(|| format!("`{name}` has no layer: give it one in ARCHITECTURE.md and in this test"))
    };
    let (&(_, from, beside), &(_, to, _)) = (layer_of(module)?, layer_of(&home)?);
    if module == "plan" && home != "schedule" && to > 0 {
        return Err("plan is pure: it sees the schedule only".to_owned());
    }
    if to < from || (to == from && beside.contains(&home.as_str())) {
        return Ok(());
    }
    Err(format!(
        "`{module}` is on layer {from}, `{home}` on layer {to}: imports go down only"
    ))
}

/// The module a name of the crate's root lives in: itself, or where `lib.rs` takes it from.
fn home(import: &str) -> String {
    let root = read(&root().join("src/lib.rs"));
    let taken = root
        .split(';')
        .filter_map(|item| item.trim_start().strip_prefix("pub use "));
    let mut taken = taken.filter_map(|path| path.split_once([':', ' ']));
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let source = taken.find(|(_, names)| names.split(|letter| !is_word(letter)).any(|name| name == import));
    source.map_or(import, |(module, _)| module).to_owned()
}

/// The first name after each `prefix` outside comments, with its line; each member of a group counts.
fn imports(source: &str, prefix: &str) -> Vec<(usize, String)> {
    let code: String = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n")
        .collect();
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

/// Where the names begin: at `at` itself, or at each direct member of the group that begins there.
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

/// The top-level module a file belongs to; none for the crate roots.
fn module_of(relative: &Path) -> Option<String> {
    let first = relative.components().nth(1)?;
    let name = Path::new(first.as_os_str()).file_stem()?.to_str()?;
    (!["lib", "main", "guide"].contains(&name)).then(|| name.to_owned())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .flat_map(|path| {
            if path.is_dir() {
                rust_files(&path)
            } else {
                vec![path]
            }
        })
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
