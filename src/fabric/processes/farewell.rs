//! How a process leaves: it tells all others, and closes the connections.

use std::sync::Arc;
use std::time::Instant;

use super::connection::{Connection, GRACE};
use super::head::Kind;
use crate::error::{Error, Loss};

/// Tells all that this process leaves, because this one was lost: to join the run again, or for another one
/// in its own place. Then closes the connections.
pub(super) fn leave(connections: &[Option<Arc<Connection>>], (lost, loss): (u32, Loss)) {
    let until = Instant::now() + GRACE;
    for connection in connections.iter().flatten() {
        connection.leave(until, (lost, loss));
    }
}

/// Tells all that this process leaves, and the cause if it is this process's failure, or the loss of another
/// process, which not all need have noticed. Then closes the connections.
pub(super) fn farewell(connections: &[Option<Arc<Connection>>], cause: Option<&Error>) {
    let has_failed = cause.is_some();
    let (kind, number, bytes) = match cause.and_then(Error::lost) {
        Some((lost, loss)) => (Kind::Rejoins, lost.into(), vec![loss.to_byte()]),
        None => {
            let cause = cause.filter(|error| !error.is_echo());
            let cause = cause.map_or(String::new(), ToString::to_string);
            (Kind::Farewell, 0, cause.into_bytes())
        }
    };
    let until = Instant::now() + GRACE;
    for connection in connections.iter().flatten() {
        if has_failed {
            connection.line().fail();
        }
        // A process that has gone needs no farewell.
        let _ = connection.tell_before(until, kind, number, &bytes);
        connection.close();
    }
}
