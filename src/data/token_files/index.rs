//! Megatron's index of a token file: where each document begins and ends.
//!
//! A pair `X.bin` and `X.idx`. The index has a magic text, a version, the type of a token, the number of
//! sequences and of entries of the last list; then the length of each sequence in tokens (`i32`), the byte at
//! which it begins in the `.bin` (`i64`), and the sequence with which each document begins (`i64`), with the
//! number of sequences at the end. All is little endian.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::data::Width;
use crate::data::file::{self, wrong};
use crate::error::{Error, Result};
use crate::system::read_at;

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
const VERSION: u64 = 1;

/// The bytes before the lists.
const HEADER: usize = MAGIC.len() + 8 + 1 + 8 + 8;

/// Megatron's numbers for the types of a token that are read and written.
const TYPES: [(u8, Width); 2] = [(8, Width::U16), (4, Width::U32)];

/// What an index says of its token file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::data) struct Index {
    /// The width of a token.
    pub(in crate::data) width: Width,
    /// Where each document ends, in tokens.
    pub(in crate::data) ends: Vec<u64>,
}

/// The `.bin` and the `.idx` of a pair. A path may be one of the two, or what both names have before the dot.
/// `None` if there is no index.
pub(in crate::data) fn pair(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let stem = match extension {
        Some("bin" | "idx") => path.with_extension(""),
        _ => path.to_owned(),
    };
    let with = |extension: &str| {
        let mut name = stem.clone().into_os_string();
        name.push(extension);
        PathBuf::from(name)
    };
    let (tokens, index) = (with(".bin"), with(".idx"));
    let is_index = extension == Some("idx");
    (is_index || (index.is_file() && (extension == Some("bin") || !path.exists()))).then_some((tokens, index))
}

/// Reads the index of a token file.
///
/// # Errors
/// When it is no index, or does not fit the token file.
pub(in crate::data) fn read(tokens: &Path, path: &Path) -> Result<Index> {
    let (file, bytes) = file::open(path)?;
    let mut all = vec![0; bytes as usize];
    read_at(&file, &mut all, 0).map_err(Error::io("read", path))?;
    if all.len() < HEADER || all[..MAGIC.len()] != *MAGIC || number(&all[9..17]) != VERSION {
        return Err(wrong(path, "is no index of Megatron (MMIDIDX, version 1)"));
    }
    let found = TYPES.into_iter().find(|(number, _)| *number == all[17]);
    let (_, width) = found.ok_or_else(|| {
        wrong(
            path,
            format!(
                "says that tokens have Megatron's type {}; types 8 (uint16) and 4 (int32) are read: write \
                 the tokens again with one of them",
                all[17]
            ),
        )
    })?;
    let (sequences, entries) = (number(&all[18..26]), number(&all[26..34]));
    let lists = u128::from(sequences) * 12 + u128::from(entries) * 8;
    let expected = HEADER as u128 + lists;
    if u128::from(bytes) < expected {
        return Err(wrong(path, format!("is truncated: it holds {bytes} of {expected} bytes")));
    }
    let (lengths, rest) = all[HEADER..].split_at(sequences as usize * 4);
    let (starts, rest) = rest.split_at(sequences as usize * 8);
    let ends = ends_of(lengths, starts, width.bytes()).ok_or_else(|| {
        wrong(path, "has sequences that do not follow each other in its `.bin`: write both files again")
    })?;
    let described = ends.last().copied().unwrap_or(0) * width.bytes();
    let (_, held) = file::open(tokens)?;
    if described != held {
        return Err(wrong(
            path,
            format!(
                "does not fit `{}`, which holds {held} bytes where the index describes {described}: they are \
                 not a pair, or one of them is not complete",
                tokens.display()
            ),
        ));
    }
    let documents = rest[..entries as usize * 8].chunks_exact(8).map(number).skip(1);
    let ends = documents.map(|sequence| match sequence {
        0 => Some(0),
        sequence => ends.get(sequence as usize - 1).copied(),
    });
    let ends: Option<Vec<u64>> = ends.collect();
    let ends = ends.filter(|ends| ends.is_sorted());
    let ends = ends.ok_or_else(|| {
        wrong(path, "has a list of documents that does not fit its sequences: write both files again")
    })?;
    Ok(Index { width, ends })
}

/// Where each sequence ends, in tokens. `None` if they do not follow each other without gaps.
fn ends_of(lengths: &[u8], starts: &[u8], width: u64) -> Option<Vec<u64>> {
    let (mut end, mut ends) = (0_u64, Vec::with_capacity(lengths.len() / 4));
    for (length, start) in lengths.chunks_exact(4).zip(starts.chunks_exact(8)) {
        if number(start) != end * width {
            return None;
        }
        end += u64::try_from(i32::from_le_bytes(length.try_into().ok()?)).ok()?;
        ends.push(end);
    }
    Some(ends)
}

/// Writes an index of documents. Each document is one sequence.
///
/// # Errors
/// When a document has too many tokens for Megatron's form, or when the file cannot be written.
pub(in crate::data) fn write(path: &Path, to: &mut impl Write, index: &Index) -> Result<()> {
    let mut lengths = Vec::with_capacity(index.ends.len());
    let mut start = 0;
    for (document, &end) in index.ends.iter().enumerate() {
        let length = i32::try_from(end - start);
        let too_long = |_| {
            wrong(
                path,
                format!(
                    "cannot be written: document {document} has more tokens than Megatron's form allows \
                     (2^31 - 1)"
                ),
            )
        };
        lengths.push(length.map_err(too_long)?);
        start = end;
    }
    let written = write_lists(to, index, &lengths);
    written.map_err(Error::io("write", path))
}

fn write_lists(to: &mut impl Write, index: &Index, lengths: &[i32]) -> std::io::Result<()> {
    let (number, _) = TYPES[usize::from(index.width == Width::U32)];
    let count = lengths.len() as u64;
    to.write_all(MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    to.write_all(&[number])?;
    to.write_all(&count.to_le_bytes())?;
    to.write_all(&(count + 1).to_le_bytes())?;
    for length in lengths {
        to.write_all(&length.to_le_bytes())?;
    }
    let starts = std::iter::once(&0).chain(&index.ends).take(lengths.len());
    for start in starts {
        to.write_all(&(start * index.width.bytes()).to_le_bytes())?;
    }
    for document in 0..=count {
        to.write_all(&document.to_le_bytes())?;
    }
    Ok(())
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("checked: eight bytes"))
}
