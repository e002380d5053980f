//! What a link between two ranks costs.

/// What a link costs, in the time of a message: `latency + bytes * per_byte` seconds. The default is a link
/// that is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkCost {
    /// Seconds of any message.
    pub latency: f64,
    /// Seconds of each byte.
    pub per_byte: f64,
}

impl LinkCost {
    /// The seconds of a message of so many bytes.
    pub fn time(self, bytes: f64) -> f64 {
        self.latency + bytes * self.per_byte
    }
}
