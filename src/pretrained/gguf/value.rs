//! The values of a file's header.

use std::fmt;
use std::io::{self, Read};

use serde_json::Value as Json;

/// A value that a file names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Whole(i64),
    Real(f64),
    Truth(bool),
    Text(String),
    List(Vec<Value>),
}

/// As messages show it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number}"),
            Self::Truth(truth) => write!(f, "{truth}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(values) => write!(f, "a list of {}", values.len()),
        }
    }
}

/// The longest text or list. Damaged files have larger numbers.
const LONGEST: u64 = 1 << 24;

impl Value {
    pub(super) fn whole(&self) -> Option<i64> {
        match self {
            Self::Whole(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }

    /// The value as JSON.
    pub(super) fn json(&self) -> Json {
        match self {
            Self::Whole(number) => Json::from(*number),
            Self::Real(number) => Json::from(*number),
            Self::Truth(truth) => Json::from(*truth),
            Self::Text(text) => Json::from(text.as_str()),
            Self::List(values) => values.iter().map(Self::json).collect(),
        }
    }

    /// Reads a value of a kind.
    pub(super) fn read(from: &mut impl Read, kind: u32) -> io::Result<Self> {
        Ok(match kind {
            0 => Self::Whole(bytes::<1>(from)?[0].into()),
            1 => Self::Whole(i8::from_le_bytes(bytes(from)?).into()),
            2 => Self::Whole(u16::from_le_bytes(bytes(from)?).into()),
            3 => Self::Whole(i16::from_le_bytes(bytes(from)?).into()),
            4 => Self::Whole(number(from)?.into()),
            5 => Self::Whole(i32::from_le_bytes(bytes(from)?).into()),
            6 => Self::Real(f32::from_le_bytes(bytes(from)?).into()),
            7 => Self::Truth(bytes::<1>(from)?[0] != 0),
            8 => Self::Text(text(from)?),
            9 => {
                let (kind, count) = (number(from)?, length(from)?);
                // A nested list could be as deep as a damaged file is long.
                if kind == 9 {
                    return Err(io::Error::other("it has a list of lists"));
                }
                let values = (0..count).map(|_| Self::read(from, kind));
                Self::List(values.collect::<io::Result<_>>()?)
            }
            10 => Self::Whole(whole(from)? as i64),
            11 => Self::Whole(i64::from_le_bytes(bytes(from)?)),
            12 => Self::Real(f64::from_le_bytes(bytes(from)?)),
            _ => return Err(io::Error::other(format!("it has a value of kind {kind}"))),
        })
    }
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
