//! The numbers of a run for Prometheus, by HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest question.
const LONGEST: usize = 8 << 10;

/// How often numbers that nobody has asked for are put together.
const UPKEEP: Duration = Duration::from_secs(5);

/// Serves the numbers of this process from now on.
///
/// # Errors
/// When the address cannot be used, or this process serves its numbers already.
pub(super) fn serve(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let recorder = PrometheusBuilder::new().build_recorder();
    let (asked, upkeep) = (recorder.handle(), recorder.handle());
    metrics::set_global_recorder(recorder).map_err(io::Error::other)?;
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    named("metrics").spawn(move || {
        // A client that goes away is no reason to end.
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, &asked);
        }
    })?;
    named("metrics upkeep").spawn(move || {
        loop {
            thread::sleep(UPKEEP);
            upkeep.run_upkeep();
        }
    })?;
    Ok(())
}

/// Answers one question and closes the connection. Every path has the numbers, as Prometheus may be told any.
fn answer(mut stream: TcpStream, numbers: &PrometheusHandle) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut asked, mut block) = (Vec::new(), [0; 1024]);
    while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut block)?;
        asked.extend_from_slice(&block[..count]);
        if count == 0 || asked.len() > LONGEST {
            return Ok(());
        }
    }
    let (status, body) = match asked.starts_with(b"GET ") {
        true => ("200 OK", numbers.render()),
        false => ("405 Method Not Allowed", String::new()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}
