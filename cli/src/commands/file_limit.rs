//! The limit on the size of files.

use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

use crate::Result;
use pipewright::error::RunError;

/// Makes a write beyond the limit on the size of files (`ulimit -f`) an error, where it would end the
/// process.
pub(super) fn report() -> Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop).map_err(|source| RunError::no_signals(source).into())
}
