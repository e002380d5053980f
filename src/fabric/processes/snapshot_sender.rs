//! The thread that gives another process what it is to keep.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, unbounded};

use super::connection::Connection;
use super::kept::Item;
use crate::ended::await_end;

/// Gives items to one process, one after the other, beside the steps. If sending does not wait, no thread is
/// needed.
pub(super) struct Giving {
    connection: Arc<Connection>,
    items: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
}

impl Giving {
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn to(connection: &Arc<Connection>) -> std::io::Result<Self> {
        if !connection.line().waits() {
            let connection = Arc::clone(connection);
            return Ok(Self { connection, items: None, thread: None });
        }
        let (items, given) = unbounded::<Item>();
        let gives = Arc::clone(connection);
        let give = move || {
            // If the process has gone, it needs nothing.
            let _ = given.iter().try_for_each(|item| gives.give(&item));
        };
        let thread = thread::Builder::new().name("snapshots".to_owned()).spawn(give)?;
        Ok(Self { connection: Arc::clone(connection), items: Some(items), thread: Some(thread) })
    }

    pub(super) fn give(&self, item: Item) {
        // If the thread has ended, or sending fails, the process has gone.
        let _ = match &self.items {
            Some(items) => items.send(item).is_ok(),
            None => self.connection.give(&item).is_ok(),
        };
    }
}

/// The connection has been closed before, so the thread ends.
impl Drop for Giving {
    fn drop(&mut self) {
        self.items = None;
        if let Some(thread) = self.thread.take() {
            await_end(thread);
        }
    }
}
