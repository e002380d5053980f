//! IDX files, the format of MNIST: a magic number, big-endian dimensions, then unsigned bytes. They may be
//! gzipped.

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::file::{self, wrong};
use crate::error::{Error, Result};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The most bytes that one compressed byte can stand for (RFC 1951: at best 258 bytes for two bits).
const GZIP_RATIO: u64 = 1032;

/// The contents of an IDX file of unsigned bytes.
#[derive(Debug)]
pub(super) struct Idx {
    pub(super) path: PathBuf,
    pub(super) dims: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// An IDX file whose header has been read.
pub(super) struct Header {
    path: PathBuf,
    dims: Vec<usize>,
    /// The number of bytes for these dimensions.
    expected: u64,
    contents: Box<dyn Read>,
}

impl Header {
    /// Reads the header of a file. `allowed` are the possible numbers of dimensions.
    pub(super) fn read(path: &Path, allowed: RangeInclusive<u8>) -> Result<Self> {
        let (mut contents, limit) = unpacked(path)?;
        let mut magic = [0; 4];
        fill(&mut contents, &mut magic, path, "its magic number")?;
        if magic[..3] != [0, 0, 8] || !allowed.contains(&magic[3]) {
            let (least, most) = allowed.into_inner();
            let dims = if least == most { most.to_string() } else { format!("{least} to {most}") };
            let magic = u32::from_be_bytes(magic);
            return Err(wrong(
                path,
                format!(
                    "is not an IDX file of unsigned bytes with {dims} dimensions: it starts with \
                     {magic:08x}, expected 000008{most:02x}"
                ),
            ));
        }
        let dims = (0..magic[3]).map(|_| {
            let mut dim = [0; 4];
            fill(&mut contents, &mut dim, path, "its dimensions")?;
            Ok(u32::from_be_bytes(dim) as usize)
        });
        let dims = dims.collect::<Result<Vec<_>>>()?;
        let product = |product: u64, &dim: &usize| product.checked_mul(dim as u64);
        let expected = dims.iter().try_fold(1, product);
        let Some(expected) = expected.filter(|&count| count > 0 && count < u64::MAX) else {
            return Err(wrong(path, format!("has impossible dimensions {dims:?} in its header")));
        };
        limit.check(path, &dims, expected)?;
        Ok(Self { path: path.to_owned(), dims, expected, contents })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of items: the first dimension.
    pub(super) fn items(&self) -> usize {
        self.dims[0]
    }

    /// Reads the bytes after the header: as many as the dimensions say, and no more.
    pub(super) fn contents(self) -> Result<Idx> {
        let Self { path, dims, expected, contents } = self;
        let mut bytes = Vec::new();
        let ended = contents.take(expected + 1).read_to_end(&mut bytes);
        let held = bytes.len() as u64;
        match ended {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(Error::io("read", path)(error)),
            _ if held < expected => Err(wrong(&path, truncated(held, expected, &dims))),
            _ if held > expected => Err(wrong(&path, too_long(expected, &dims))),
            Err(_) => Err(wrong(&path, "is truncated: the end of its gzip stream is missing")),
            Ok(_) => Ok(Idx { path, dims, bytes }),
        }
    }
}

/// What a file's length says about the length of its contents.
enum Limit {
    /// The bytes of a plain file, with its header.
    Plain(u64),
    /// The bytes of a compressed file.
    Packed(u64),
}

impl Limit {
    /// Refuses dimensions that a file of this length cannot have. Its contents are not read yet.
    fn check(&self, path: &Path, dims: &[usize], expected: u64) -> Result<()> {
        let header = 4 + 4 * dims.len() as u64;
        let problem = match *self {
            Self::Plain(length) if length.saturating_sub(header) < expected => {
                truncated(length.saturating_sub(header), expected, dims)
            }
            Self::Plain(length) if length - header > expected => too_long(expected, dims),
            Self::Packed(packed) if packed.saturating_mul(GZIP_RATIO) < expected => {
                format!(
                    "is truncated: {packed} compressed bytes cannot hold the {expected} bytes that its \
                     dimensions {dims:?} call for"
                )
            }
            _ => return Ok(()),
        };
        Err(wrong(path, problem))
    }
}

fn truncated(held: u64, expected: u64, dims: &[usize]) -> String {
    format!("is truncated: it holds {held} of the {expected} bytes that its dimensions {dims:?} call for")
}

fn too_long(expected: u64, dims: &[usize]) -> String {
    format!("holds more than the {expected} bytes that its dimensions {dims:?} call for")
}

/// The file's contents, unpacked if they are gzipped. The file's name does not matter.
fn unpacked(path: &Path) -> Result<(Box<dyn Read>, Limit)> {
    let (file, length) = file::open(path)?;
    let mut reader = BufReader::new(file);
    let start = reader.fill_buf().map_err(Error::io("read", path))?;
    if start.is_empty() {
        return Err(wrong(path, "is empty"));
    }
    Ok(if start.starts_with(&GZIP) {
        (Box::new(MultiGzDecoder::new(reader)), Limit::Packed(length))
    } else {
        (Box::new(reader), Limit::Plain(length))
    })
}

fn fill(reader: &mut dyn Read, bytes: &mut [u8], path: &Path, what: &'static str) -> Result<()> {
    reader.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => wrong(path, format!("is truncated: it ends in {what}")),
        _ => Error::io("read", path)(error),
    })
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header").field("path", &self.path).field("dims", &self.dims).finish_non_exhaustive()
    }
}
