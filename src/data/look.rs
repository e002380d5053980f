//! What a file is, by its first bytes.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::file::{self, wrong};
use crate::error::{Error, Result};

/// How many bytes are looked at.
const LOOKED: u64 = 8192;

/// The byte order mark of UTF-8. It is no part of a text.
const MARK: &[u8] = b"\xef\xbb\xbf";

const GZIP: &[u8] = b"\x1f\x8b\x08";

/// With this a Parquet table begins.
pub(super) const PARQUET: &[u8] = b"PAR1";

/// Where a file has a mark, the mark, what such a file is, and the cure.
type Mark = (usize, &'static [u8], &'static str, &'static str);

/// Files of encodings that are not read.
const ENCODINGS: [Mark; 3] = [
    (0, b"\xff\xfe\0\0", "text in UTF-32", FROM_UTF32),
    (0, b"\xff\xfe", "text in UTF-16", FROM_UTF16),
    (0, b"\xfe\xff", "text in UTF-16", FROM_UTF16),
];

/// Files that hold something else in a form of their own.
const CONTAINERS: [Mark; 7] = [
    (0, PARQUET, "a Parquet table", AS_PARQUET),
    (0, b"PK\x03\x04", "a ZIP archive", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "packed by Zstandard", UNPACK),
    (0, b"\xfd7zXZ\0", "packed by xz", UNPACK),
    (4, b"1AY&SY", "packed by bzip2", UNPACK),
    (0, b"\x93NUMPY", "a NumPy array", CONVERT),
    (0, b"%PDF-", "a PDF", CONVERT),
];

/// What a file of weights has after its length, and in its header.
const SAFETENSORS: [&[u8]; 2] = [b"\0\0\0\0{\"", b"\"dtype\""];

const FROM_UTF16: &str = "convert it, as `iconv -f UTF-16 -t UTF-8` does";
const FROM_UTF32: &str = "convert it, as `iconv -f UTF-32 -t UTF-8` does";
const AS_PARQUET: &str = "read it with data.kind = \"parquet\"";
const UNPACK: &str = "unpack it first";
const CONVERT: &str = "write its text into a file of UTF-8";

/// What a file is.
#[derive(Debug)]
pub(super) enum Look {
    /// Text, with this many bytes of a mark before it.
    Text(usize),
    /// Packed by gzip.
    Gzip,
    /// Neither.
    Other(String),
}

/// What a file is that begins with these bytes.
pub(super) fn look(start: &[u8]) -> Look {
    if start.starts_with(GZIP) {
        return Look::Gzip;
    }
    if let Some((what, cure)) = marked(&ENCODINGS, start).or_else(|| container(start)) {
        return Look::Other(format!("is {what}, and not text: {cure}"));
    }
    let zeros = |parity| start.iter().skip(parity).step_by(2).filter(|byte| **byte == 0).count();
    let (what, cure) = match [zeros(0), zeros(1)] {
        [0, 0] => return Look::Text(if start.starts_with(MARK) { MARK.len() } else { 0 }),
        // Latin letters in UTF-16 have a zero in every second byte, and only there.
        [one, other] if one.min(other) == 0 && 5 * one.max(other) > start.len() => {
            ("text in UTF-16", FROM_UTF16)
        }
        _ => ("a binary file", CONVERT),
    };
    Look::Other(format!("is {what}, and not text: {cure}"))
}

/// What a file is, and the cure, if it begins as one that holds something else in a form of its own.
pub(super) fn container(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let [after_length, in_header] = SAFETENSORS;
    let has = |part: &[u8]| start.windows(part.len()).any(|window| window == part);
    let is_safetensors = start.get(4..).is_some_and(|rest| rest.starts_with(after_length)) && has(in_header);
    let weights = ("a file of weights (safetensors)", CONVERT);
    let gzip = || unpacks(start).then_some(("packed by gzip", UNPACK));
    marked(&CONTAINERS, start).or_else(|| is_safetensors.then_some(weights)).or_else(gzip)
}

/// Whether it begins as a file that gzip has packed: in tokens the mark alone may stand by chance.
fn unpacks(start: &[u8]) -> bool {
    start.starts_with(GZIP) && MultiGzDecoder::new(start).read_exact(&mut [0]).is_ok()
}

fn marked(marks: &[Mark], start: &[u8]) -> Option<(&'static str, &'static str)> {
    let is_there = |&&(at, mark, ..): &&Mark| start.get(at..).is_some_and(|rest| rest.starts_with(mark));
    marks.iter().find(is_there).map(|&(_, _, what, cure)| (what, cure))
}

/// The first bytes of a reader.
pub(super) fn start(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    reader.take(LOOKED).read_to_end(&mut start)?;
    Ok(start)
}

/// The first bytes of a file. If it is packed by gzip, the first bytes of what is packed.
pub(super) fn unpacked_start(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |error| Error::io("read", path)(error);
    let (mut file, _) = file::open(path)?;
    let first = start(&file).map_err(unreadable)?;
    if !matches!(look(&first), Look::Gzip) {
        return Ok(first);
    }
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    start(MultiGzDecoder::new(file)).map_err(unreadable)
}

/// Opens a file of text at its first character. Returns its length too, and where that character is.
///
/// # Errors
/// When the file is packed, binary or in another encoding.
pub(super) fn open_text(path: &Path) -> Result<(File, u64, u64)> {
    let (mut file, bytes) = file::open(path)?;
    let start = start(&file).map_err(Error::io("read", path))?;
    let mark = match look(&start) {
        Look::Text(mark) => mark as u64,
        Look::Gzip => {
            return Err(wrong(path, format!("is packed by gzip, and not text: {UNPACK}")));
        }
        Look::Other(problem) => return Err(wrong(path, problem)),
    };
    if mark > 0 && mark == bytes {
        return Err(wrong(path, "is empty"));
    }
    file.seek(SeekFrom::Start(mark)).map_err(Error::io("read", path))?;
    Ok((file, bytes, mark))
}

/// Opens a file of text, packed by gzip or not, at its first character.
///
/// # Errors
/// When the file is binary or in another encoding.
pub(super) fn open_packed_text(path: &Path) -> Result<Box<dyn Read>> {
    let unreadable = |error| Error::io("read", path)(error);
    let (mut file, _) = file::open(path)?;
    let first = start(&file).map_err(unreadable)?;
    if !matches!(look(&first), Look::Gzip) {
        return open_text(path).map(|(file, ..)| Box::new(file) as _);
    }
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut unpacked = MultiGzDecoder::new(file);
    let first = start(&mut unpacked).map_err(unreadable)?;
    match look(&first) {
        Look::Text(mark) => {
            let mut first = Cursor::new(first);
            first.set_position(mark as u64);
            Ok(Box::new(first.chain(unpacked)))
        }
        Look::Gzip => Err(wrong(path, format!("is packed by gzip twice, and not text: {UNPACK}"))),
        Look::Other(problem) => Err(wrong(path, problem)),
    }
}
