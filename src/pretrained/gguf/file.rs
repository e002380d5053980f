//! A `.gguf` file: its header, and where its tensors are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use pipewright_stages::{Quantisation, Quantised};
use serde_json::Value;

use super::blocks::{KINDS, block};
use super::value::{self, length, number, text, whole};
use crate::error::{Error, Result};
use crate::pretrained::opened;
use crate::system::read_at;

const MAGIC: [u8; 4] = *b"GGUF";
/// The key for the multiple of bytes at which tensors begin.
const ALIGNMENT: &str = "general.alignment";

/// A file that has been opened, with all but its tensors read.
#[derive(Debug)]
pub(super) struct Gguf {
    path: PathBuf,
    file: File,
    pub(super) values: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
    /// Where the tensors begin, in bytes.
    start: u64,
    /// The bytes of the file.
    size: u64,
}

#[derive(Debug)]
struct Tensor {
    /// Outermost first.
    dims: Vec<usize>,
    kind: u32,
    offset: u64,
}

impl Gguf {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (file, size) = opened::open(path)?;
        let mut from = BufReader::new(&file);
        let header = read_header(&mut from).and_then(|header| Ok((header, from.stream_position()?)));
        let ((values, tensors), end) = header.map_err(|error| {
            Error::pretrained(format!(
                "`{}` is no .gguf file: {}",
                path.display(),
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => "it ends in its header".to_owned(),
                    _ => error.to_string(),
                }
            ))
        })?;
        let alignment = values.get(ALIGNMENT).and_then(Value::as_i64).unwrap_or(32).max(1) as u64;
        Ok(Self {
            path: path.to_owned(),
            file,
            values,
            tensors,
            // An alignment that is none puts the tensors behind the file's end.
            start: end.checked_next_multiple_of(alignment).unwrap_or(u64::MAX),
            size,
        })
    }

    /// The names of its tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The dimensions of a tensor, outermost first.
    pub(super) fn dims(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| tensor.dims.as_slice())
    }

    /// In which blocks the numbers of a tensor that exists are stored. `None`: in `f32`.
    ///
    /// # Errors
    /// When that is not known.
    pub(super) fn how(&self, name: &str) -> Result<Option<Quantisation>> {
        let kind = self.tensors[name].kind;
        let known = KINDS.iter().find(|(known, ..)| *known == kind);
        let error = || {
            Error::pretrained(format!(
                "`{}`: {name} is quantised in a way that this program does not read (type {kind} of ggml); \
                 it reads {}",
                self.path.display(),
                KINDS.map(|(_, name, _)| name).join(", ")
            ))
        };
        Ok(known.ok_or_else(error)?.2)
    }

    /// Refuses a tensor that exists if its numbers are not known, or not all in the file.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        let how = self.how(name)?;
        if self.place(name, how).is_some() {
            return Ok(());
        }
        Err(Error::damaged(&self.path, format_args!("it ends before the numbers of {name} do")))
    }

    /// The numbers of a tensor that exists and was checked.
    pub(super) fn read(&self, name: &str) -> Result<Vec<f32>> {
        let (how, mut bytes) = (self.how(name)?, self.bytes(name)?);
        let Some(kind) = how else {
            return Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect());
        };
        let (in_block, size) = block(how);
        let count = bytes.len() / size * in_block;
        // Numbers of 16 bits may end in the middle of a block.
        let whole = count.next_multiple_of(kind.block().0);
        bytes.resize(kind.bytes(whole), 0);
        let mut blocks = Quantised::new(whole);
        blocks.push(kind, bytes.into());
        let mut numbers = vec![0.0; count];
        blocks.decode(0, 0..count, &mut numbers);
        Ok(numbers)
    }

    /// The bytes of a tensor that exists and was checked.
    pub(super) fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let (at, bytes) = self.place(name, self.how(name)?).expect("checked: all numbers are there");
        let mut held = vec![0; bytes];
        read_at(&self.file, &mut held, at).map_err(Error::io("read", &self.path))?;
        Ok(held)
    }

    /// Where the bytes of a tensor begin, and how many there are. `None` if they are not all in the file, or
    /// make no whole blocks.
    fn place(&self, name: &str, how: Option<Quantisation>) -> Option<(u64, usize)> {
        let tensor = &self.tensors[name];
        let (in_block, size) = block(how);
        let mut counts = tensor.dims.iter();
        let count = counts.try_fold(1_usize, |count, dim| count.checked_mul(*dim))?;
        let row = tensor.dims.last().copied().unwrap_or(1);
        let bytes = (count / in_block).checked_mul(size)?;
        let at = self.start.checked_add(tensor.offset)?;
        let is_there = at.checked_add(bytes as u64)? <= self.size;
        (is_there && row.is_multiple_of(in_block)).then_some((at, bytes))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

type Header = (BTreeMap<String, Value>, BTreeMap<String, Tensor>);

fn read_header(from: &mut impl Read) -> io::Result<Header> {
    let mut magic = [0; 4];
    from.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(io::Error::other("it does not begin with GGUF"));
    }
    let version = number(from)?;
    if !(2..=3).contains(&version) {
        let why = format!("its version is {version}, versions 2 and 3 are read");
        return Err(io::Error::other(why));
    }
    let (tensors, values) = (length(from)?, length(from)?);
    let entry = |_| {
        let (key, kind) = (text(from)?, number(from)?);
        Ok((key, value::read(from, kind)?))
    };
    let values = (0..values).map(entry).collect::<io::Result<_>>()?;
    let tensors = (0..tensors).map(|_| read_tensor(from)).collect::<io::Result<_>>()?;
    Ok((values, tensors))
}

fn read_tensor(from: &mut impl Read) -> io::Result<(String, Tensor)> {
    let (name, count) = (text(from)?, number(from)?);
    if count > 4 {
        return Err(io::Error::other(format!("{name} has {count} dimensions")));
    }
    let mut dims =
        (0..count).map(|_| whole(from).map(|size| size as usize)).collect::<io::Result<Vec<_>>>()?;
    dims.reverse();
    let (kind, offset) = (number(from)?, whole(from)?);
    Ok((name, Tensor { dims, kind, offset }))
}
