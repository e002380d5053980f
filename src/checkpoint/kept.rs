//! What a checkpoint keeps of a parameter's weights.

use pipewright_stages::Parameter;

use crate::checksum::{Checksum, ChecksumBuilder};

/// What a checkpoint keeps of a parameter's weights.
#[derive(Clone, Copy, Debug)]
pub enum Kept<'a> {
    /// All of them.
    Numbers(&'a [f32]),
    /// Their checksum: they stay where they came from.
    Elsewhere(Checksum),
}

impl<'a> Kept<'a> {
    /// Of a parameter that is not divided.
    pub fn of(parameter: &'a Parameter) -> Self {
        match parameter.quantisation() {
            Some(_) => Self::Elsewhere(checksum(parameter)),
            None => Self::Numbers(&parameter.value),
        }
    }
}

/// The checksum of a parameter's weights, as they are stored.
pub fn checksum(parameter: &Parameter) -> Checksum {
    let mut sum = ChecksumBuilder::new();
    parameter.show_bytes(&mut |bytes| sum.add(bytes));
    sum.checksum()
}
