//! What a store tells of an object.

/// An object of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name in the store.
    pub name: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// What the store calls these contents. Other contents have another tag.
    pub tag: Option<String>,
}
