//! What says which call, and which wire of it, a packet belongs to.

/// One thing that all ranks do together: a step, an evaluation, the saving of a checkpoint. Whatever a rank
/// sends belongs to the call that it has begun ([`super::Transport::begin`]), so no other call can take it.
///
/// A later attempt comes after every call of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// How often the ranks have been started again: 0 until one has failed and was built anew.
    pub attempt: u32,
    /// The number of the call, counted alike in every process. What ranks send before the first call belongs
    /// to number 0.
    pub number: u64,
}

impl Call {
    /// The first attempt of the call of this number. Nothing starts ranks again yet, so there is no other.
    pub fn first(number: u64) -> Self {
        Self { attempt: 0, number }
    }
}

/// Names one wire between two ranks within a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);
