//! The numbers of the newest step, for Prometheus.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;

use crate::error::Result;
use crate::http::{self, Text};
use pipewright::error::RunError;

/// How often the recorder puts together what it was told.
const UPKEEP: Duration = Duration::from_secs(5);

/// Serves the numbers at an address, on a thread of its own, as long as the process lives.
pub(super) fn serve(address: SocketAddr) -> Result<()> {
    begin(address).map_err(|source| {
        RunError::because(
            format!("metrics.listen: cannot serve metrics on {address}: {source}; choose a free port"),
            source,
        )
        .into()
    })
}

fn begin(address: SocketAddr) -> io::Result<()> {
    let listener = http::listen(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let recorder = PrometheusBuilder::new().install_recorder().map_err(io::Error::other)?;
    let rendered = recorder.clone();
    let text = Text {
        path: "/metrics",
        kind: "text/plain; version=0.0.4; charset=utf-8",
        make: move || Ok(rendered.render()),
    };
    let serve = async move {
        tokio::spawn(async move {
            loop {
                recorder.run_upkeep();
                tokio::time::sleep(UPKEEP).await;
            }
        });
        http::serve(listener, text).await
    };
    let thread = thread::Builder::new().name("metrics".to_owned());
    thread.spawn(move || runtime.block_on(serve))?;
    Ok(())
}
