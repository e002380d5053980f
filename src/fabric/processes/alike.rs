//! What must be the same in all processes, and how they differ.

use std::fs::File;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::part::plain;
use crate::checksum::ChecksumBuilder;
use crate::error::{FabricError, Result};

/// What must be equal in all processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::fabric) struct Alike {
    /// The version of the engine.
    version: String,
    /// The checksum of the program's file.
    binary: [u8; 16],
    /// The config, and what else must be equal, line by line.
    program: String,
}

impl Alike {
    /// What this process has. `program`: the config, and what else must be equal, line by line.
    pub(in crate::fabric) fn here(program: &str) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), binary: *binary(), program: program.to_owned() }
    }

    /// Whether the other one is of the same program file.
    pub(in crate::fabric) fn is_of_build(&self, other: &Self) -> bool {
        self.binary == other.binary && self.version == other.version
    }

    /// How `who` differs from process 0, which has this. `None` if it does not.
    pub(in crate::fabric) fn difference(&self, who: &str, other: &Self) -> Option<String> {
        match self.is_of_build(other) {
            true => other_program(who, &self.program, &other.program),
            false => Some(other_build(who, [&self.version, &other.version])),
        }
    }

    /// Says that `who` runs another program file than process 0, which has this.
    pub(in crate::fabric) fn other_build(&self, who: &str) -> String {
        other_build(who, [&self.version; 2])
    }
}

/// What this process says of itself to the others: which program file it runs, and `program`, such as the
/// config. Both must be equal in all. [`compare`] reads it.
pub fn introduction(program: &str) -> Vec<u8> {
    postcard::to_stdvec(&Alike::here(program)).expect("memory takes what is written")
}

/// Refuses processes that differ. `introductions`: by process, see [`introduction`]. `call` says what the
/// processes do, such as `joining by MPI`.
///
/// # Errors
/// [`FabricError::Refused`] with the first process that differs from process 0, and how.
pub fn compare(call: &str, introductions: &[impl AsRef<[u8]>]) -> Result<()> {
    let mut first: Option<Alike> = None;
    for (process, introduction) in (0..).zip(introductions) {
        let who = format!("process {process}");
        let other: Alike = postcard::from_bytes(introduction.as_ref())
            .map_err(|error| FabricError::unreadable_part(&who, call, error))?;
        match &first {
            None => first = Some(other),
            Some(first) => {
                if let Some(cause) = first.difference(&who, &other) {
                    return Err(FabricError::refused(cause).into());
                }
            }
        }
    }
    Ok(())
}

/// The checksum of the program's file. All zeros if the system does not tell which file it is. Every process
/// of a run computes it before it joins, so it has to be fast. Who can make another file with this checksum
/// has the program, and could join with that.
pub(in crate::fabric) fn binary() -> &'static [u8; 16] {
    static CHECKSUM: OnceLock<[u8; 16]> = OnceLock::new();
    CHECKSUM.get_or_init(|| {
        let mut checksum = ChecksumBuilder::new();
        let read = std::env::current_exe().and_then(File::open).and_then(|file| checksum.add_all(file));
        read.map_or([0; 16], |()| checksum.checksum().bytes())
    })
}

/// Says that `who` runs another program file than process 0. `versions` are the versions of process 0 and of
/// the other one.
fn other_build(who: &str, versions: [&str; 2]) -> String {
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
fn other_program(who: &str, first: &str, other: &str) -> Option<String> {
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
