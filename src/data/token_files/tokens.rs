//! Tokens in memory or in a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::file::{self, Constant, Seen, wrong};
use crate::data::look;
use crate::error::{Error, Result};

/// How many bytes are read at a time when all are read.
const BLOCK: usize = 1 << 18;

/// The fewest bytes that show what they are.
const SHORT: usize = 64;

/// The first bytes of a NumPy array's file.
const NPY: &[u8; 6] = b"\x93NUMPY";

/// The width of a token in a token file, little endian. In configs `u16` and `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Width {
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
}

impl Width {
    /// The bytes of a token.
    pub(in crate::data) fn bytes(self) -> u64 {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }

    /// Its name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::U16 => "u16",
            Self::U32 => "u32",
        }
    }

    /// The narrowest for this many tokens.
    pub fn of(vocabulary: usize) -> Self {
        match vocabulary <= 1 << 16 {
            true => Self::U16,
            false => Self::U32,
        }
    }
}

/// Where tokens are.
#[derive(Debug)]
pub(super) enum Tokens {
    /// Text in memory, a byte a token.
    Text(Vec<u8>),
    /// Text that is part of the program.
    BuiltIn(&'static [u8]),
    /// Ids in memory, each of four bytes, little endian.
    Ids(Vec<u8>),
    /// Text that is too long for memory, from this byte on.
    TextFile(Constant, u64),
    /// The same. The file, which was seen so, is opened for each read.
    TextAt(PathBuf, u64, Seen),
    /// A token file.
    File(Constant, Width),
}

/// The tokens of a token file, and their count. `is_known`: something beside the file tells their width.
pub(super) fn open(path: &Path, width: Width, is_known: bool) -> Result<(Tokens, u64)> {
    let (file, bytes) = file::open(path)?;
    if bytes == 0 {
        return Err(wrong(path, "is empty"));
    }
    let start = look::start(&file).map_err(Error::io("read", path))?;
    if start.starts_with(NPY) {
        return Err(wrong(
            path,
            "is a NumPy array (.npy), whose header would be read as tokens; write the tokens alone, as \
             `array.astype('uint16').tofile('tokens.bin')` does",
        ));
    }
    if let Some(problem) = odd(&start, width).filter(|_| !is_known) {
        return Err(wrong(path, problem));
    }
    let file = Constant::new(file).map_err(Error::io("read", path))?;
    let tokens = Tokens::File(file, width);
    let each = tokens.width();
    if !bytes.is_multiple_of(each) {
        return Err(wrong(
            path,
            format!(
                "holds {bytes} bytes, which is not a whole number of tokens of {each} bytes: set data.dtype \
                 to the type of its tokens, or write it again if it is not complete"
            ),
        ));
    }
    Ok((tokens, bytes / each))
}

/// Why a file that begins so is hardly one of tokens of this width.
fn odd(start: &[u8], width: Width) -> Option<String> {
    if let Some((what, cure)) = look::container(start) {
        return Some(format!("is {what}, and not tokens: {cure}"));
    }
    if start.len() < SHORT {
        return None;
    }
    let is_letter = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if start.iter().all(is_letter) {
        return Some(
            "is text, and not tokens: set data.kind to its form, such as \"text\", or make tokens of it with \
             `pipewright tokenize`"
                .to_owned(),
        );
    }
    // The bytes of a number begin with the lowest.
    let each = width.bytes() as usize;
    let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let pairs = || start.chunks_exact(2 * each).map(|pair| pair.split_at(each));
    let is_wider = pairs().all(|(_, high)| is_zero(high)) && pairs().any(|(low, _)| !is_zero(low));
    let is_longer = pairs().skip(1).step_by(2).all(|(low, _)| is_zero(low));
    is_wider.then(|| match width {
        Width::U16 if !is_longer => {
            "has a 0 in every second place when it is read as u16: set data.dtype to \"u32\"".to_owned()
        }
        Width::U16 | Width::U32 => "has numbers of 64 bits, and tokens have 16 or 32: write them as u16 or \
             u32, with numpy by `tokens.astype(\"uint32\").tofile(...)`, and set data.dtype to that"
            .to_owned(),
    })
}

impl Tokens {
    /// The bytes of a token.
    fn width(&self) -> u64 {
        match self {
            Self::Text(_) | Self::BuiltIn(_) | Self::TextFile(..) | Self::TextAt(..) => 1,
            Self::Ids(_) => Width::U32.bytes(),
            Self::File(_, width) => width.bytes(),
        }
    }

    /// The number of different tokens of this width.
    pub(in crate::data) fn possible(&self) -> u64 {
        1 << (8 * self.width())
    }

    /// Fills `tokens` with those from position `at` on. All of them must exist.
    pub(in crate::data) fn read(&self, at: u64, tokens: &mut [u32]) -> io::Result<()> {
        let width = self.width() as usize;
        // The file's bytes are read into the end of the tokens' memory, and then widened from the front.
        let from = tokens.len() * (4 - width);
        self.bytes(at * width as u64, &mut bytemuck::cast_slice_mut(tokens)[from..])?;
        let count = tokens.len();
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(tokens);
        for index in 0..count {
            let token = token(&bytes[from + width * index..][..width]);
            bytes[4 * index..][..4].copy_from_slice(&token.to_ne_bytes());
        }
        Ok(())
    }

    /// Adds all `count` tokens to a checksum, and returns the highest token and their own checksum.
    pub(super) fn scan(&self, count: u64, of_all: &mut ChecksumBuilder) -> io::Result<(u32, Checksum)> {
        let width = self.width();
        let (mut block, mut highest, mut checksum) = (vec![0; BLOCK], 0, ChecksumBuilder::new());
        let (mut at, end) = (0, count * width);
        while at < end {
            let block = &mut block[..(BLOCK as u64).min(end - at) as usize];
            self.bytes(at, block)?;
            of_all.add(block);
            checksum.add(block);
            let tokens = block.chunks_exact(width as usize).map(token);
            highest = tokens.fold(highest, u32::max);
            at += block.len() as u64;
        }
        let checksum = checksum.checksum();
        if let Some((seen, start)) = self.seen() {
            seen.remember(start, checksum);
        }
        Ok((highest, checksum))
    }

    /// How their file was seen when it was opened, and the byte at which they begin in it.
    fn seen(&self) -> Option<(&Seen, u64)> {
        match self {
            Self::Text(_) | Self::Ids(_) | Self::BuiltIn(_) => None,
            Self::File(file, _) => Some((file.seen(), 0)),
            Self::TextFile(file, start) => Some((file.seen(), *start)),
            Self::TextAt(_, start, seen) => Some((seen, *start)),
        }
    }

    /// Fills `bytes` with those from position `at` on.
    fn bytes(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let held: &[u8] = match self {
            Self::Text(held) | Self::Ids(held) => held,
            Self::BuiltIn(text) => text,
            Self::File(file, _) => return file.read_at(bytes, at),
            Self::TextFile(file, start) => return file.read_at(bytes, start + at),
            Self::TextAt(path, start, seen) => {
                let file = File::open(path)?;
                return seen.read_at(&file, bytes, start + at);
            }
        };
        bytes.copy_from_slice(&held[at as usize..][..bytes.len()]);
        Ok(())
    }
}

/// The token in these one, two or four bytes, little endian.
fn token(bytes: &[u8]) -> u32 {
    match *bytes {
        [a] => u32::from(a),
        [a, b] => u32::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => unreachable!("a token has one, two or four bytes"),
    }
}
