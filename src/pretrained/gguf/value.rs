//! The values of a file's header.

use std::io::{self, Read};

use serde_json::Value;

/// The longest text or list. Damaged files have larger numbers.
const LONGEST: u64 = 1 << 24;

/// Reads a value of a kind.
pub(super) fn read(from: &mut impl Read, kind: u32) -> io::Result<Value> {
    Ok(match kind {
        0 => bytes::<1>(from)?[0].into(),
        1 => i8::from_le_bytes(bytes(from)?).into(),
        2 => u16::from_le_bytes(bytes(from)?).into(),
        3 => i16::from_le_bytes(bytes(from)?).into(),
        4 => number(from)?.into(),
        5 => i32::from_le_bytes(bytes(from)?).into(),
        6 => f64::from(f32::from_le_bytes(bytes(from)?)).into(),
        7 => (bytes::<1>(from)?[0] != 0).into(),
        8 => text(from)?.into(),
        9 => {
            let (kind, count) = (number(from)?, length(from)?);
            // A nested list could be as deep as a damaged file is long.
            if kind == 9 {
                return Err(io::Error::other("it has a list of lists"));
            }
            let values = (0..count).map(|_| read(from, kind));
            Value::Array(values.collect::<io::Result<_>>()?)
        }
        10 => (whole(from)? as i64).into(),
        11 => i64::from_le_bytes(bytes(from)?).into(),
        12 => f64::from_le_bytes(bytes(from)?).into(),
        _ => return Err(io::Error::other(format!("it has a value of kind {kind}"))),
    })
}

/// A number of 32 bits.
pub(super) fn number(from: &mut impl Read) -> io::Result<u32> {
    bytes(from).map(u32::from_le_bytes)
}

/// A number of 64 bits.
pub(super) fn whole(from: &mut impl Read) -> io::Result<u64> {
    bytes(from).map(u64::from_le_bytes)
}

/// The length of what follows.
pub(super) fn length(from: &mut impl Read) -> io::Result<u64> {
    let length = whole(from)?;
    if length > LONGEST {
        return Err(io::Error::other(format!("it has a length of {length}")));
    }
    Ok(length)
}

/// A text, after its length.
pub(super) fn text(from: &mut impl Read) -> io::Result<String> {
    let mut text = Vec::new();
    let count = length(from)?;
    from.take(count).read_to_end(&mut text)?;
    if (text.len() as u64) < count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    String::from_utf8(text).map_err(|_| io::Error::other("it has a text that is not UTF-8"))
}

fn bytes<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
