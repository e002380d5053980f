//! The names of calls, and of the wires in a call.

/// Something that all ranks do together: a step, an evaluation, saving a checkpoint. Whatever a rank sends
/// belongs to the call that it has begun ([`super::Transport::begin`]), so no other call can take it.
///
/// A later attempt comes after every call of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// How often the ranks were restarted after a failure. It begins at 0.
    pub attempt: u32,
    /// The number of the call, the same in every process. Whatever ranks send before the first call belongs
    /// to call 0.
    pub number: u64,
}

impl Call {
    /// The first attempt of the call with this number.
    pub fn first(number: u64) -> Self {
        Self { attempt: 0, number }
    }
}

/// Names one wire between two ranks within a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);
