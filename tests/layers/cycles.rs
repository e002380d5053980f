//! Which files of a module import each other. A cycle among files is as hard to read as one among modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module's path from the root of the crate, such as `plan`, `makers`; the path of `lib.rs` is empty.
type Module = Vec<String>;

/// A name that a file imports: its whole path from the root of the crate, and whether the file re-exports it.
struct Import {
    path: Vec<String>,
    public: bool,
}

/// The files of `src/`, by module, with what each imports.
pub(super) struct Files {
    imports: BTreeMap<Module, Vec<Import>>,
}

impl Files {
    /// Reads files, each given by its path in `src/` and its text.
    pub(super) fn new<'a>(files: impl IntoIterator<Item = (&'a Path, &'a str)>) -> Self {
        let files: BTreeMap<Module, &str> = files
            .into_iter()
            .map(|(path, text)| (module(path), text))
            .collect();
        let imports = files
            .iter()
            .map(|(module, text)| (module.clone(), imports(module, text)));
        Self {
            imports: imports.collect(),
        }
    }

    /// The groups of files that import each other, all in one top-level module.
    pub(super) fn cycles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&Module, BTreeSet<Module>> = self
            .imports
            .keys()
            .map(|file| (file, self.reached(file)))
            .collect();
        let mut groups = BTreeSet::new();
        for (file, reached) in &reach {
            if reached.contains(*file) {
                let together = |other: &&Module| reach[*other].contains(*file);
                let group: Vec<String> = reached
                    .iter()
                    .filter(together)
                    .map(|file| file.join("/"))
                    .collect();
                groups.insert(group);
            }
        }
        groups.into_iter().collect()
    }

    /// The files that a file imports, directly or through others.
    fn reached(&self, file: &Module) -> BTreeSet<Module> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![file.clone()]);
        while let Some(file) = open.pop() {
            for import in &self.imports[&file] {
                let target = self.home(&import.path, 0);
                if target.is_some_and(|target| {
                    target.first() == file.first() && *target != file && reached.insert(target.clone())
                }) {
                    open.extend(target.cloned());
                }
            }
        }
        reached
    }

    /// The file that defines the name at a path. If a file only re-exports the name, the search goes on at
    /// its source.
    fn home(&self, path: &[String], hops: usize) -> Option<&Module> {
        let deepest = (0..=path.len())
            .rev()
            .find(|&length| self.imports.contains_key(&path[..length]))?;
        let (file, imports) = self.imports.get_key_value(&path[..deepest])?;
        let name = path.get(deepest);
        let handed_on = imports
            .iter()
            .find(|import| import.public && import.path.last() == name);
        match handed_on {
            Some(import) if hops < 8 && import.path[..] != *path => self.home(&import.path, hops + 1),
            _ => Some(file),
        }
    }
}

fn module(path: &Path) -> Module {
    let path = path.with_extension("");
    let mut names: Module = path
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if names.last().is_some_and(|name| name == "mod") || names == ["lib"] {
        names.pop();
    }
    names
}

/// What a file imports: by its `use` items, and by its paths that begin with `crate::` or `super::`.
fn imports(module: &Module, text: &str) -> Vec<Import> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n")
        .collect();
    let children: Vec<&str> = code
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_suffix(';')?
                .split_once("mod ")
                .map(|(_, name)| name)
        })
        .collect();
    let mut found = Vec::new();
    for item in code.split(';') {
        let Some(at) = item
            .find("use ")
            .filter(|&at| item[..at].trim_end().is_empty() || ends_in_pub(&item[..at]))
        else {
            continue;
        };
        let public = ends_in_pub(&item[..at]);
        let tree: String = item[at + 4..].split_whitespace().collect::<Vec<_>>().join(" ");
        let mut paths = Vec::new();
        expand(&tree, Vec::new(), &mut paths);
        let whole = paths
            .into_iter()
            .filter_map(|path| from_root(module, &children, path));
        found.extend(whole.map(|path| Import { path, public }));
    }
    for (start, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let is_visibility = code[..start].ends_with("(in ");
        if is_visibility || code[..start].ends_with(word) {
            continue;
        }
        let path = code[start..].split(|letter| !word(letter)).next().unwrap_or("");
        if path.ends_with("::") {
            // A group is part of a `use` item, which has been read already.
            continue;
        }
        let path = path
            .split("::")
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        found.extend(from_root(module, &children, path).map(|path| Import { path, public: false }));
    }
    found
}

fn ends_in_pub(text: &str) -> bool {
    let last = text
        .trim_end()
        .rsplit(['\n', ']', '}'])
        .next()
        .unwrap_or("")
        .trim();
    last == "pub" || (last.starts_with("pub(") && last.ends_with(')'))
}

/// The paths of a tree such as `a::{b, c::d}`.
fn expand(tree: &str, before: Vec<String>, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    if let Some(members) = tree.strip_prefix('{') {
        let members = members.strip_suffix('}').unwrap_or(members);
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in members.char_indices().chain([(members.len(), ',')]) {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            if letter == ',' && depth == 0 {
                if !members[start..at].trim().is_empty() {
                    expand(&members[start..at], before.clone(), paths);
                }
                start = at + 1;
            }
        }
        return;
    }
    match tree.split_once("::") {
        Some((name, rest)) => expand(rest, [before, vec![name.trim().to_owned()]].concat(), paths),
        None => {
            let name = tree.split(" as ").next().unwrap_or(tree).trim();
            let name = if name == "self" {
                vec![]
            } else {
                vec![name.to_owned()]
            };
            paths.push([before, name].concat());
        }
    }
}

/// The same path from the root of the crate. `None` for a path into another crate.
fn from_root(module: &Module, children: &[&str], path: Vec<String>) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => Some([&module[..module.len().saturating_sub(ups)], &path[ups..]].concat()),
        "self" => Some([&module[..], &path[1..]].concat()),
        child if children.contains(&child) => Some([&module[..], &path[..]].concat()),
        _ => None,
    }
}
