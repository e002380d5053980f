//! Waiting for the end of a thread that may never end.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// For how long a thread that was told to end is waited for. One that hangs is then left alone.
const GRACE: Duration = Duration::from_secs(2);

/// The longest pause between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Waits for the end of a thread that was told to end, but not for ever: it may hang in code of the user, in
/// a disk or in a network. Returns whether it has ended.
pub(crate) fn await_end(thread: JoinHandle<()>) -> bool {
    let (since, mut pause) = (Instant::now(), Duration::from_micros(20));
    while !thread.is_finished() {
        if since.elapsed() > GRACE {
            return false;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    }
    // A panic was already reported, as an error or as the end of a process.
    let _ = thread.join();
    true
}
