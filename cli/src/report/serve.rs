//! The page of a run that still trains, made anew for everybody who asks.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use futures_util::future::{Either, select};

use super::page::page;
use super::record::Record;
use crate::http::{self, Text};
use crate::{Error, Result};
use pipewright::error::RunError;

/// Serves the page of runs until the process is interrupted (Ctrl-C). `ready` is told where.
///
/// # Errors
/// [`RunError`] if the address cannot be used.
pub(crate) fn serve(
    runs: Vec<Record>,
    address: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let refuse = |source: io::Error| {
        Error::from(RunError::because(
            format!("cannot serve the page on {address}: {source}; choose another port with --serve=PORT"),
            source,
        ))
    };
    let listener = http::listen(address).map_err(refuse)?;
    ready(listener.local_addr().map_err(refuse)?)?;
    let runs = Mutex::new(runs);
    let text = Text {
        path: "/",
        kind: "text/html; charset=utf-8",
        make: move || {
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            let read = runs.iter_mut().try_for_each(Record::update);
            read.map(|()| page(&runs, true)).map_err(|error| error.to_string())
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(refuse)?.block_on(async {
        match select(pin!(http::serve(listener, text)), pin!(tokio::signal::ctrl_c())).await {
            Either::Left((served, _)) => served.map(|never| match never {}).map_err(refuse),
            Either::Right((interrupted, _)) => interrupted.map_err(refuse),
        }
    })
}
