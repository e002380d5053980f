//! What receives from other processes where nothing wakes a thread: a rank that waits does it itself.

/// Receives what other processes send, and delivers it to the inboxes.
///
/// A thread of the fabric does this all the time. If a rank that waits does it too, no thread has to wake
/// another one.
pub(super) trait Feed: Send + Sync {
    /// Delivers the next frame, if one has come. Does nothing if another thread is at it, or if the caller
    /// no longer `wants` it: while this is asked, nobody else delivers. Returns whether it is worth looking
    /// again at once.
    ///
    /// Only a process's single rank may call it, when its inbox is empty: then there is room for a frame.
    fn feed(&self, wants: &dyn Fn() -> bool) -> bool;
}
