//! Everything that is written appears whole or not at all: few files make files, and each says how.

use crate::{read, root, rust_files};

/// The modules and files that make files, and why these are whole or not there. All others use `whole`.
const WRITERS: &[(&str, &str)] = &[
    ("whole", "under another name, then renamed"),
    ("checkpoint/write", "in a folder that is renamed when it is whole"),
    ("checkpoint/stored", "in the same folder"),
    ("store/fetched", "under another name, then renamed, also in a folder; locks"),
    ("data", "token files under another name, then renamed; locks"),
    ("pretrained", "in a folder that the command renames when it is whole"),
    ("commands/export", "in the same folder"),
    ("commands/belongings", "in the same folder"),
    ("commands/out", "an empty file, which is removed: can the folder be written to?"),
    ("run/directory/history", "whole lines are added"),
    ("run/directory/files", "whole lines are added"),
    ("run/directory/lock", "its contents are for people"),
    ("run/directory/tensorboard", "whole events are added"),
];

/// What makes a file.
const MAKES: [&str; 5] = ["File::create", "fs::write(", "fs::copy(", ".create(true)", "create_new"];

#[test]
fn files_are_made_where_it_is_known_that_they_are_whole_or_not_there() {
    let mut faults = Vec::new();
    let sources = ["src", "cli/src"].map(|sources| root().join(sources));
    for (sources, file) in
        sources.iter().flat_map(|sources| rust_files(sources).into_iter().map(move |file| (sources, file)))
    {
        let text = read(&file);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let name = file.strip_prefix(sources).expect("it is there").with_extension("");
        let may = WRITERS.iter().any(|(writer, _)| name.starts_with(writer));
        if !may && MAKES.iter().any(|words| code.contains(words)) {
            faults.push(name.display().to_string());
        }
    }
    assert!(
        faults.is_empty(),
        "let `whole` write these files, or say in WRITERS why they are whole or not there\n{}",
        faults.join("\n")
    );
}
