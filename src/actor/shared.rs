//! What ranks answer, as bytes: what goes from process to process.

use pipewright_stages::Shape;
use pipewright_stages::loss::Score;
use sha2::Sha256;
use sha2::digest::common::hazmat::SerializableState;

use crate::id::{MicroBatch, Rank, StageId};
use crate::schedule::{Cell, Flow, Pass, Timed};
use crate::transport::{describe, described};
use crate::worker::{Fault, Outcome, ParameterInfo, RankReport, Record, Site, Trained, Verdict};

/// A value that goes from process to process. Numbers keep their bits.
pub(crate) trait Shared: Sized {
    /// Appends it.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes it from the front; none when it is not there.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Values as a block.
pub(super) fn to_block<T: Shared>(values: &[T]) -> Vec<u8> {
    let mut block = Vec::new();
    (values.len() as u64).put(&mut block);
    values.iter().for_each(|value| value.put(&mut block));
    block
}

/// The values of a block.
pub(super) fn from_block<T: Shared>(mut block: &[u8]) -> Option<Vec<T>> {
    Vec::take(&mut block).filter(|_| block.is_empty())
}

/// Numbers of eight bytes, little endian.
macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Shared for $type {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}

numbers!(u8, u32, u64, f64);

/// Structs and tuples of such values, by their fields.
macro_rules! fields {
    ($($type:path { $($field:tt),* })*) => {$(
        impl Shared for $type {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: Shared::take(from)?),* })
            }
        }
    )*};
}

fields! {
    Rank { 0 }
    StageId { 0 }
    MicroBatch { 0 }
    Cell { stage, micro_batch }
    Site { rank, stage, index }
    ParameterInfo { name, dims, site }
    Score { sum, weight, correct }
    Verdict { score, grad_norm }
    RankReport { busy, waiting, bubble, peak_bytes, in_flight }
    Timed { pass, cell, start, end, held, most }
    Record { passes, sent, taken }
    Trained { outcome, report, trace }
}

/// Cases of an enum, by a number for each.
macro_rules! cases {
    ($($type:path { $($number:literal => $case:ident $(($inner:ident $(, $second:ident)?))?),* })*) => {$(
        impl Shared for $type {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $(Self::$case $(($inner $(, $second)?))? => {
                        u32::put(&$number, to);
                        $($inner.put(to); $($second.put(to);)?)?
                    })*
                }
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                match u32::take(from)? {
                    $($number => {
                        $(let $inner = Shared::take(from)?; $(let $second = Shared::take(from)?;)?)?
                        Some(Self::$case $(($inner $(, $second)?))?)
                    })*
                    _ => None,
                }
            }
        }
    )*};
}

cases! {
    Pass { 0 => Forward, 1 => Backward, 2 => BackwardInput, 3 => BackwardWeight }
    Flow { 0 => Activation, 1 => Gradient }
    Fault { 0 => Loss(micro_batch), 1 => Gradient(stage, index) }
    Outcome { 0 => Updated(verdict), 1 => NotFinite(fault) }
}

impl Shared for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl Shared for usize {
    fn put(&self, to: &mut Vec<u8>) {
        (*self as u64).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        u64::take(from)?.try_into().ok()
    }
}

impl Shared for String {
    fn put(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        to.extend(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let length = usize::take(from)?;
        let (text, rest) = from.split_at_checked(length)?;
        *from = rest;
        Self::from_utf8(text.to_vec()).ok()
    }
}

impl<T: Shared> Shared for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        u32::from(self.is_some()).put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u32::take(from)? {
            0 => Some(None),
            _ => T::take(from).map(Some),
        }
    }
}

impl<T: Shared> Shared for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(to_block(self));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let count = u64::take(from)?;
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<A: Shared, B: Shared> Shared for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Shared for Shape {
    fn put(&self, to: &mut Vec<u8>) {
        let mut description = Vec::new();
        describe(self, &mut description);
        description.len().put(to);
        to.extend(description);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let length = usize::take(from)?;
        let (description, rest) = from.split_at_checked(length)?;
        *from = rest;
        described(description)
    }
}

/// A hash on its way from the weights of one rank to those of the next.
impl Shared for Sha256 {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend(self.serialize());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut state = Self::default().serialize();
        let (bytes, rest) = from.split_at_checked(state.len())?;
        state.copy_from_slice(bytes);
        *from = rest;
        Self::deserialize(&state).ok()
    }
}
