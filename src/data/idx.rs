//! IDX files, the format of MNIST: a magic number, big-endian dimensions, then unsigned bytes; plain or
//! gzipped.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::text;
use crate::error::{Error, Result};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The contents of an IDX file of unsigned bytes.
#[derive(Debug)]
pub(super) struct Idx {
    pub(super) path: PathBuf,
    pub(super) dims: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

impl Idx {
    /// Reads a file that must have one of these numbers of dimensions.
    pub(super) fn read(path: &Path, dims: std::ops::RangeInclusive<u8>) -> Result<Self> {
        let mut reader = unpacked(path)?;
        let mut magic = [0; 4];
        fill(&mut reader, &mut magic, path, "its magic number")?;
        if magic[..3] != [0, 0, 8] || !dims.contains(&magic[3]) {
            let count = if dims.start() == dims.end() {
                dims.start().to_string()
            } else {
                format!("{} to {}", dims.start(), dims.end())
            };
            return Err(Error::Data(format!(
                "`{}` is not an IDX file of unsigned bytes with {count} dimensions: it starts with {:08x}, \
                 expected {:08x}",
                path.display(),
                u32::from_be_bytes(magic),
                u32::from_be_bytes([0, 0, 8, *dims.end()]),
            )));
        }
        let dims = (0..magic[3]).map(|_| {
            let mut dim = [0; 4];
            fill(&mut reader, &mut dim, path, "its dimensions")?;
            Ok(u32::from_be_bytes(dim) as usize)
        });
        let dims = dims.collect::<Result<Vec<_>>>()?;
        let bytes = body(&mut reader, path, &dims)?;
        Ok(Self {
            path: path.to_owned(),
            dims,
            bytes,
        })
    }

    /// The number of items, each of the dimensions after the first.
    pub(super) fn items(&self) -> usize {
        self.dims[0]
    }
}

/// The file's contents, unpacked when it is gzipped, whatever its name.
fn unpacked(path: &Path) -> Result<Box<dyn Read>> {
    let file = File::open(path).map_err(|error| text::missing(path, &error))?;
    let mut reader = BufReader::new(file);
    let start = reader.fill_buf().map_err(Error::io("read", path))?;
    if start.is_empty() {
        return Err(Error::Data(format!("`{}` is empty", path.display())));
    }
    Ok(if start.starts_with(&GZIP) {
        Box::new(MultiGzDecoder::new(reader))
    } else {
        Box::new(reader)
    })
}

fn fill(reader: &mut dyn Read, bytes: &mut [u8], path: &Path, what: &str) -> Result<()> {
    reader.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => {
            Error::Data(format!("`{}` is truncated: it ends in {what}", path.display()))
        }
        _ => Error::io("read", path)(error),
    })
}

/// The bytes after the header: as many as the dimensions say.
fn body(reader: &mut dyn Read, path: &Path, dims: &[usize]) -> Result<Vec<u8>> {
    let expected = dims
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64));
    let expected = expected
        .filter(|&count| count > 0 && count < u64::MAX)
        .ok_or_else(|| {
            Error::Data(format!(
                "`{}` has impossible dimensions {dims:?} in its header",
                path.display()
            ))
        })?;
    let mut bytes = Vec::new();
    let ended = reader.take(expected + 1).read_to_end(&mut bytes);
    let wrong = |what: String| Err(Error::Data(format!("`{}` {what}", path.display())));
    let held = bytes.len() as u64;
    match ended {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(Error::io("read", path)(error)),
        _ if held < expected => wrong(format!(
            "is truncated: it holds {held} of the {expected} bytes that its dimensions {dims:?} call for"
        )),
        _ if held > expected => wrong(format!(
            "holds more than the {expected} bytes that its dimensions {dims:?} call for"
        )),
        Err(_) => wrong("is truncated: the end of its gzip stream is missing".to_owned()),
        Ok(_) => Ok(bytes),
    }
}
