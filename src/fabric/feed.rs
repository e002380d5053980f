//! What receives from other processes where nothing wakes a thread: a rank that waits does it itself.

/// Receives what other processes send, and gives it to [`FromProcess`](super::line::FromProcess).
///
/// A thread of the fabric does this all the time. If a rank that waits does it too, no thread has to wake
/// another one.
pub trait Feed: Send + Sync {
    /// Delivers the next frame, if one has come. Does nothing if another thread is at it, or if the caller
    /// no longer `wants` it: while this is asked, nobody else delivers. Returns whether it is worth looking
    /// again at once.
    ///
    /// Only a process's single rank may call it, when its inbox is empty: then there is room for a frame.
    fn feed(&self, wants: &dyn Fn() -> bool) -> bool;

    /// Whether [`Feed::feed`] waits itself until something may have come. Then no thread of the fabric has to
    /// receive: a process that waits for a word of another one calls it too.
    fn waits(&self) -> bool {
        false
    }
}
