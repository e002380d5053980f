//! A process's part in a call of all processes: the call's name, and then a block or an error.

use super::text::plain;
use crate::error::{Error, FabricError, Result};

const DONE: u8 = 0;
const FAILED: u8 = 1;
/// It could not continue because another process had failed.
const FOLLOWS: u8 = 2;
/// It missed a file or a folder, which a process that has failed may have removed.
const MISSED: u8 = 3;

/// How likely a failure is the first cause. The most likely comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// It names a cause.
    Cause,
    /// A process ended without a farewell.
    Lost,
    /// A file or a folder is missing. A process that has failed may have removed it.
    Missed,
    /// A process has left.
    Left,
    /// It follows from another failure.
    Follows,
}

impl Order {
    /// The order of an error of this process's own.
    fn of(error: &Error) -> Self {
        match error {
            error if error.is_echo() => Self::Follows,
            error if error.misses_a_file() => Self::Missed,
            _ => Self::Cause,
        }
    }
}

/// Why a process has no block.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) order: Order,
    pub(super) error: Error,
}

impl Failure {
    pub(super) fn new(order: Order, error: Error) -> Self {
        Self { order, error }
    }

    /// This process's own failure.
    pub(super) fn own(error: Error) -> Self {
        let order = Order::of(&error);
        Self { order, error }
    }
}

/// A process's part as bytes.
pub(super) fn write(call: &str, part: &Result<Vec<u8>>) -> Vec<u8> {
    let mut bytes = call.as_bytes().to_vec();
    bytes.push(b'\n');
    match part {
        Ok(block) => {
            bytes.push(DONE);
            bytes.extend_from_slice(block);
        }
        Err(error) => {
            bytes.push(match Order::of(error) {
                Order::Follows => FOLLOWS,
                Order::Missed => MISSED,
                Order::Cause | Order::Lost | Order::Left => FAILED,
            });
            bytes.extend_from_slice(error.to_string().as_bytes());
        }
    }
    bytes
}

/// Reads another process's part. `calls` are this process's number and its call, which must be the same
/// there.
pub(super) fn read(
    process: u32,
    (own, call): (u32, &str),
    part: &[u8],
) -> std::result::Result<Vec<u8>, Failure> {
    let end = part.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let (theirs, rest) = (String::from_utf8_lossy(&part[..end]), part.get(end + 1..).unwrap_or_default());
    let failed = |order, text: &[u8]| {
        let cause = plain(&String::from_utf8_lossy(text));
        Err(Failure::new(order, Error::Process { process, cause }))
    };
    match rest {
        [FAILED, text @ ..] => failed(Order::Cause, text),
        [FOLLOWS, text @ ..] => failed(Order::Follows, text),
        [MISSED, text @ ..] => failed(Order::Missed, text),
        [DONE, block @ ..] if theirs == call => Ok(block.to_vec()),
        _ => Err(Failure::own(FabricError::calls_differ(own, call, process, &plain(&theirs)).into())),
    }
}
