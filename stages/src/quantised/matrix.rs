//! A matrix of blocks.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::codes::Pairs;
use super::decode::{decode, decode_halves};
use super::kind::Quantisation;
use crate::error::Result;

/// Bytes that somebody else holds, such as a file in memory.
#[derive(Clone)]
pub struct SharedBytes {
    holder: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// Some of the holder's bytes.
    ///
    /// # Panics
    /// When the holder does not have them.
    pub fn of(holder: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Self {
        let _ = &holder.as_ref().as_ref()[range.clone()];
        Self { holder, range }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { holder: Arc::new(bytes), range }
    }
}

impl AsRef<[u8]> for SharedBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.holder.as_ref().as_ref()[self.range.clone()]
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({})", self.range.len())
    }
}

/// A matrix whose rows are [blocks](Quantisation). Parts of its rows may be of different kinds.
///
/// ```
/// use pipewright_stages::{Quantisation, Quantised};
///
/// let numbers: Vec<f32> = (0..128).map(|number| number as f32).collect();
/// let matrix = Quantised::of(Quantisation::Q8_0, 64, &numbers)?;
/// assert_eq!((matrix.rows(), matrix.columns(), matrix.bytes()), (2, 64, 4 * 34));
/// let mut row = [0.0; 64];
/// matrix.decode(1, 0..64, &mut row);
/// assert!(row.iter().zip(&numbers[64..]).all(|(got, wanted)| (got - wanted).abs() < 0.6));
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Clone)]
pub struct Quantised {
    columns: usize,
    parts: Vec<Part>,
}

#[derive(Clone)]
struct Part {
    /// The row behind its last one.
    end: usize,
    kind: Quantisation,
    row_bytes: usize,
    bytes: SharedBytes,
}

impl Quantised {
    /// A matrix without rows.
    pub fn new(columns: usize) -> Self {
        Self { columns, parts: Vec::new() }
    }

    /// Adds rows below the others.
    ///
    /// # Panics
    /// When the rows are no whole blocks, or the bytes no whole rows.
    pub fn push(&mut self, kind: Quantisation, bytes: SharedBytes) {
        let row_bytes = kind.bytes(self.columns);
        let count = bytes.as_ref().len();
        assert!(kind.fits(self.columns), "rows of {} numbers are no blocks of {kind:?}", self.columns);
        assert!(count.is_multiple_of(row_bytes), "{count} bytes are no rows of {row_bytes}");
        let end = self.rows() + count / row_bytes;
        self.parts.push(Part { end, kind, row_bytes, bytes });
    }

    /// Rounds the rows of `columns` numbers.
    ///
    /// # Errors
    /// When a number is not finite, or the blocks [cannot be made](Quantisation::can_be_made).
    ///
    /// # Panics
    /// When the numbers are no whole rows of whole blocks.
    pub fn of(kind: Quantisation, columns: usize, numbers: &[f32]) -> Result<Self> {
        let mut matrix = Self::new(columns);
        matrix.push_rounded(kind, numbers)?;
        Ok(matrix)
    }

    /// Blocks whose bits are all zero.
    pub(crate) fn of_zero_bits(kind: Quantisation, [rows, columns]: [usize; 2]) -> Self {
        let mut matrix = Self::new(columns);
        matrix.push(kind, vec![0; kind.bytes(rows * columns)].into());
        matrix
    }

    /// As [`Quantised::push`], of numbers that are rounded.
    ///
    /// # Errors
    /// As for [`Quantised::of`].
    ///
    /// # Panics
    /// As for [`Quantised::of`].
    pub fn push_rounded(&mut self, kind: Quantisation, numbers: &[f32]) -> Result<()> {
        let mut bytes = Vec::with_capacity(kind.bytes(numbers.len()));
        kind.encode(numbers, &mut bytes)?;
        self.push(kind, bytes.into());
        Ok(())
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.parts.last().map_or(0, |part| part.end)
    }

    /// The numbers of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many bytes its blocks have.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.as_ref().len()).sum()
    }

    /// The bytes of its blocks, part after part.
    pub fn chunks(&self) -> impl Iterator<Item = (Quantisation, &[u8])> {
        self.parts.iter().map(|part| (part.kind, part.bytes.as_ref()))
    }

    /// Decodes these numbers of a row.
    ///
    /// # Panics
    /// When there is no such row, or it has no such numbers.
    pub fn decode(&self, row: usize, columns: Range<usize>, to: &mut [f32]) {
        let (kind, bytes) = self.row(row);
        decode(kind, bytes, columns, to);
    }

    /// Decodes whole pieces of a row, from this one on, into pairs of `bf16`.
    pub(crate) fn decode_halves(&self, row: usize, first: usize, to: &mut [Pairs]) {
        let (kind, bytes) = self.row(row);
        decode_halves(kind, bytes, first, to);
    }

    /// All its numbers, row by row.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.rows() * self.columns];
        for (row, to) in numbers.chunks_exact_mut(self.columns.max(1)).enumerate() {
            self.decode(row, 0..self.columns, to);
        }
        numbers
    }

    /// The blocks of consecutive rows: of each kind, with how many rows there are.
    pub(crate) fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = (Quantisation, &[u8], usize)> {
        let mut start = 0;
        self.parts.iter().filter_map(move |part| {
            let own = start.max(rows.start)..part.end.min(rows.end);
            let before = std::mem::replace(&mut start, part.end);
            let bytes = part.bytes.as_ref();
            let places = |row: usize| (row - before) * part.row_bytes;
            (own.start < own.end).then(|| (part.kind, &bytes[places(own.start)..places(own.end)], own.len()))
        })
    }

    /// The blocks of a row.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> (Quantisation, &[u8]) {
        let mut start = 0;
        for part in &self.parts {
            if row < part.end {
                let at = (row - start) * part.row_bytes;
                return (part.kind, &part.bytes.as_ref()[at..][..part.row_bytes]);
            }
            start = part.end;
        }
        panic!("there are {start} rows, not row {row}")
    }
}

impl PartialEq for Quantised {
    fn eq(&self, other: &Self) -> bool {
        self.columns == other.columns && self.chunks().eq(other.chunks())
    }
}

impl fmt::Debug for Quantised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<_> = self.parts.iter().map(|part| part.kind).collect();
        kinds.dedup();
        write!(f, "Quantised({} x {} of {kinds:?})", self.rows(), self.columns)
    }
}
