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

/// Which modules import which.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// The files of a package, each with those that it imports.
pub(super) struct Files(Graph);

impl Files {
    /// Reads files, each given by its path in the sources and its text.
    pub(super) fn new<'a>(files: impl IntoIterator<Item = (&'a Path, &'a str)>) -> Self {
        let files: BTreeMap<Module, &str> =
            files.into_iter().map(|(path, text)| (module(path), text)).collect();
        let imports = files.iter().map(|(module, text)| (module.clone(), imports(module, text)));
        let names = Names(imports.collect());
        let imported = |imports: &Vec<Import>| {
            let homes = imports.iter().filter_map(|import| names.home(&import.path, 0));
            homes.cloned().collect()
        };
        Self(names.0.iter().map(|(file, all)| (file.clone(), imported(all))).collect())
    }

    /// The groups of files that import each other, all in one top-level module.
    pub(super) fn cycles_in_modules(&self) -> Vec<Vec<String>> {
        cycles(&self.changed(|file| file.clone(), |file, other| file.first() == other.first()))
    }

    /// The groups of files that import each other.
    pub(super) fn cycles(&self) -> Vec<Vec<String>> {
        cycles(&self.0)
    }

    /// The groups of top-level modules that import each other.
    pub(super) fn cycles_of_modules(&self) -> Vec<Vec<String>> {
        cycles(&self.changed(|file| file.iter().take(1).cloned().collect(), |_, _| true))
    }

    /// The same graph with other nodes, and only those edges between files.
    fn changed(&self, node: impl Fn(&Module) -> Module, edge: impl Fn(&Module, &Module) -> bool) -> Graph {
        let mut graph = Graph::new();
        for (file, others) in &self.0 {
            let others = others.iter().filter(|other| edge(file, other)).map(&node);
            graph.entry(node(file)).or_default().extend(others);
        }
        graph
    }
}

fn cycles(graph: &Graph) -> Vec<Vec<String>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|node| (node, reached(graph, node))).collect();
    let mut groups = BTreeSet::new();
    for (node, reached) in &reach {
        let mutual = reached.iter().filter(|other| **other != *node && reach[**other].contains(node));
        let mut group: Vec<String> = mutual.chain([node]).map(|node| node.join("/")).collect();
        group.sort();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

/// The nodes that a node imports, directly or through others.
fn reached<'a>(graph: &'a Graph, node: &'a Module) -> BTreeSet<&'a Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![node]);
    while let Some(node) = open.pop() {
        open.extend(graph[node].iter().filter(|other| reached.insert(*other)));
    }
    reached
}

/// What each file imports.
struct Names(BTreeMap<Module, Vec<Import>>);

impl Names {
    /// The file that defines the name at a path. If a file only re-exports the name, the search goes on at
    /// its source.
    fn home(&self, path: &[String], hops: usize) -> Option<&Module> {
        let deepest = (0..=path.len()).rev().find(|&length| self.0.contains_key(&path[..length]))?;
        let (file, imports) = self.0.get_key_value(&path[..deepest])?;
        let name = path.get(deepest);
        let handed_on = imports.iter().find(|import| import.public && import.path.last() == name);
        match handed_on {
            Some(import) if hops < 8 && import.path[..] != *path => self.home(&import.path, hops + 1),
            _ => Some(file),
        }
    }
}

fn module(path: &Path) -> Module {
    let path = path.with_extension("");
    let mut names: Module = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| name == "mod") || names == ["lib"] {
        names.pop();
    }
    names
}

/// What a file imports: by its `use` items, and by its paths that begin with `crate::` or `super::`. Its own
/// tests may use what imports it.
fn imports(module: &Module, text: &str) -> Vec<Import> {
    let code = text.split("\nmod tests {").next().unwrap_or(text);
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    let children: Vec<&str> = code
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';')?.split_once("mod ").map(|(_, name)| name))
        .collect();
    let mut found = Vec::new();
    for item in code.split(';') {
        let Some(at) =
            item.find("use ").filter(|&at| item[..at].trim_end().is_empty() || ends_in_pub(&item[..at]))
        else {
            continue;
        };
        let public = ends_in_pub(&item[..at]);
        let tree: String = item[at + 4..].split_whitespace().collect::<Vec<_>>().join(" ");
        let mut paths = Vec::new();
        expand(&tree, Vec::new(), &mut paths);
        let whole = paths.into_iter().filter_map(|path| from_root(module, &children, path));
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
        let path = path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        found.extend(from_root(module, &children, path).map(|path| Import { path, public: false }));
    }
    found
}

fn ends_in_pub(text: &str) -> bool {
    let last = text.trim_end().rsplit(['\n', ']', '}']).next().unwrap_or("").trim();
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
            let name = if name == "self" { vec![] } else { vec![name.to_owned()] };
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
