//! What a link between two ranks costs, and who waits for whom there.

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
    /// The seconds of a message of `bytes` bytes.
    pub fn time(self, bytes: f64) -> f64 {
        self.latency + bytes * self.per_byte
    }
}

/// How the messages that a rank sends wait for each other. On a slow link most of a message's time is the
/// time of its bytes, and they keep the link from others. The default: messages do not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// For how much of its time a transfer occupies the link of the rank that sends it.
    pub transfer: f64,
    /// Whether reductions take the same link, for all of their time. A transfer and a reduction that are
    /// under way at once have half of it each.
    pub reductions: bool,
}
