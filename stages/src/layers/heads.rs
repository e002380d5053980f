//! The heads of attention.

/// Heads of attention: `query` heads share `key_value` heads in groups. Each is `width` numbers wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// The number of query heads.
    pub query: usize,
    /// The number of key heads, and of value heads.
    pub key_value: usize,
    /// The numbers in a head.
    pub width: usize,
}
