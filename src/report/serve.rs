//! The page of a run that still trains, made anew for everybody who asks.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::page::page;
use super::record::Record;
use crate::error::RunError;
use crate::{Error, Result};

const PAUSE: Duration = Duration::from_millis(100);

/// Serves the page of runs until the process is interrupted (Ctrl-C). `ready` is told where.
///
/// # Errors
/// [`RunError::Serve`] if the address cannot be used.
pub(crate) fn serve(
    runs: Vec<Record>,
    address: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let refuse = |source: io::Error| Error::from(RunError::Serve { address, source });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(refuse)?.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        ready(listener.local_addr().map_err(refuse)?)?;
        let served = pin!(answer_all(listener, Arc::new(Mutex::new(runs))));
        match select(served, pin!(tokio::signal::ctrl_c())).await {
            Either::Left((failed, _)) | Either::Right((failed, _)) => failed.map_err(refuse),
        }
    })
}

async fn answer_all(listener: TcpListener, runs: Arc<Mutex<Vec<Record>>>) -> io::Result<()> {
    let is_private = listener.local_addr()?.ip().is_loopback();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Somebody went away before, or too many files are open. Both pass.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let runs = Arc::clone(&runs);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = answer(&request, is_private, &runs);
                async { Ok::<_, Infallible>(answer) }
            });
            // The one who asked has gone away. There is nobody to be told.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(request: &Request<Incoming>, is_private: bool, runs: &Mutex<Vec<Record>>) -> Response<Full<Bytes>> {
    if is_private && !names_this_machine(request.headers().get(HOST)) {
        return say(
            StatusCode::MISDIRECTED_REQUEST,
            "this page is for this machine only\n",
        );
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => {
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            match runs.iter_mut().try_for_each(Record::update) {
                Ok(()) => with_type(StatusCode::OK, "text/html; charset=utf-8", page(&runs, true)),
                Err(error) => say(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")),
            }
        }
        (_, "/") => say(StatusCode::METHOD_NOT_ALLOWED, "this page can only be read\n"),
        _ => say(StatusCode::NOT_FOUND, "there is one page here: /\n"),
    }
}

/// Whether a request is for an address or for `localhost`. Another name may be that of a page elsewhere,
/// which wants to read what only this machine may.
fn names_this_machine(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let without_port = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_address = without_port.parse::<IpAddr>().is_ok() || host.parse::<SocketAddr>().is_ok();
    is_address || without_port == "localhost"
}

fn say(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", text.to_owned())
}

fn with_type(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
