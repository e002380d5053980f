//! What must be the same in all processes, and how they differ.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::part::plain;
use crate::error::FabricError;

/// A hash of the program's file. All zeros if the system does not tell which file it is.
pub(in crate::fabric) fn binary() -> &'static [u8; 32] {
    static HASH: OnceLock<[u8; 32]> = OnceLock::new();
    HASH.get_or_init(|| {
        let file = std::env::current_exe().and_then(std::fs::read);
        file.map_or([0; 32], |bytes| Sha256::digest(bytes).into())
    })
}

/// Says that `who` runs another program file than process 0. `versions` are the versions of process 0 and of
/// the other one.
pub(in crate::fabric) fn other_build(who: &str, versions: [&str; 2]) -> String {
    let [own, version] = [versions[0], &plain(versions[1])];
    if version == own {
        return format!("{who} runs another build of the program: start the same file everywhere");
    }
    format!(
        "{who} runs version {version} of the program, process 0 version {own}: start the same \
         file everywhere"
    )
}

/// Says how the program of `who`, such as its config, differs from process 0's, if it does.
pub(in crate::fabric) fn other_program(who: &str, first: &str, other: &str) -> Option<String> {
    let difference = difference(first, other)?;
    Some(format!(
        "{who} was started with another config: {difference}; start all with the same config \
         and options"
    ))
}

/// The first line that differs, with its section.
fn difference(first: &str, other: &str) -> Option<String> {
    if first == other {
        return None;
    }
    let (mut ours, mut theirs) = (first.lines(), other.lines());
    let mut section = String::new();
    loop {
        let pair = (ours.next(), theirs.next());
        if let (Some(our), Some(their)) = pair
            && our == their
        {
            if our.starts_with('[') {
                section = format!("{our} ");
            }
            continue;
        }
        let shown = |line: Option<&str>| {
            line.map_or_else(|| "nothing".to_owned(), |line| format!("`{section}{line}`"))
        };
        return Some(format!("it has {}, process 0 {}", shown(pair.1), shown(pair.0)));
    }
}

/// The first part in which a process differs from process 0.
pub(super) fn first_difference(
    first: &[(String, String)],
    process: u32,
    other: &[(String, String)],
) -> Option<FabricError> {
    let pairs = first.iter().map(Some).chain(std::iter::repeat(None));
    let pairs = pairs.zip(other.iter().map(Some).chain(std::iter::repeat(None)));
    let mut pairs = pairs.take(first.len().max(other.len()));
    let (ours, theirs) = pairs.find(|(ours, theirs)| ours != theirs)?;
    let (part, _) = ours.or(theirs)?;
    let value = |side: Option<&(String, String)>| {
        let found = side.filter(|(name, _)| name == part);
        found.map_or_else(|| "nothing".to_owned(), |(_, value)| value.clone())
    };
    Some(FabricError::refused(format!(
        "process {process} differs from process 0 in {part}: it has {}, process 0 has {}",
        value(theirs),
        value(ours)
    )))
}
