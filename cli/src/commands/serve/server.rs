//! The port: connections, limits, and which request goes where.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::answer::{Head, ending, whole};
use super::parse;
use super::queue::Job;
use super::refusal::Refusal;
use super::request::Kind;
use super::served::Served;
use super::stream;
use crate::http::is_for_this_machine;

/// The most connections at once. Others wait until one ends.
const MOST: usize = 256;
/// How long the head or the body of a request may take, and how long a connection may be silent.
const SLOWEST: Duration = Duration::from_secs(30);
/// The largest body of a request, in bytes.
const LARGEST: usize = 8 << 20;
/// After a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);
/// How long connections may take to hear the end of their answers when the server ends.
const LAST: Duration = Duration::from_secs(2);

type Body = BoxBody<Bytes, Infallible>;

/// Takes requests until the process is interrupted (Ctrl-C). Then the queue is closed.
pub(super) async fn take(listener: TcpListener, served: Arc<Served>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let is_private = listener.local_addr()?.ip().is_loopback();
    let places = Arc::new(Semaphore::new(MOST));
    let mut connections = JoinSet::new();
    let mut ended = pin!(tokio::signal::ctrl_c());
    loop {
        let next = pin!(async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        });
        let (place, accepted) = match select(&mut ended, next).await {
            Either::Left(_) => break,
            Either::Right((next, _)) => next,
        };
        let Ok((stream, _)) = accepted else {
            // Somebody went away before, or too many files are open. Both pass.
            sleep(PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let served = Arc::clone(&served);
        connections.spawn(async move {
            let service = service_fn(|request| {
                let served = Arc::clone(&served);
                async move { Ok::<_, Infallible>(answer(request, is_private, &served).await) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(SLOWEST);
            // Who asked has gone away. There is nobody to be told.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
    served.queue.close();
    let _ = timeout(LAST, async { while connections.join_next().await.is_some() {} }).await;
    Ok(())
}

async fn answer(request: Request<Incoming>, is_private: bool, served: &Served) -> Response<Body> {
    if is_private && !is_for_this_machine(&request) {
        let why = "this port is for this machine only: ask for localhost or for an address";
        return refused(&Refusal::with(StatusCode::MISDIRECTED_REQUEST, why));
    }
    match routed(request, served).await {
        Ok(response) => response,
        Err(refusal) => refused(&refusal),
    }
}

/// Which of the paths is asked for.
async fn routed(request: Request<Incoming>, served: &Served) -> Result<Response<Body>, Refusal> {
    let path = request.uri().path().to_owned();
    let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
    if path == "/health" && is_reading {
        return Ok(said(StatusCode::OK, &json!({"status": "ok", "waiting": served.queue.count()})));
    }
    check_token(&request, served)?;
    let named = path.strip_prefix("/v1/models/");
    let kind = match path.as_str() {
        "/v1/chat/completions" => Some(Kind::Chat),
        "/v1/completions" => Some(Kind::Completion),
        _ => None,
    };
    match (kind, named) {
        (Some(kind), _) if request.method() == Method::POST => written(kind, request, served).await,
        (None, None) if path == "/v1/models" && is_reading => {
            Ok(said(StatusCode::OK, &json!({"object": "list", "data": [served.model()]})))
        }
        (None, Some(name)) if name == served.name && is_reading => Ok(said(StatusCode::OK, &served.model())),
        (None, Some(name)) if is_reading => Err(served.no_model(name)),
        _ => {
            let there =
                "here are POST /v1/chat/completions, POST /v1/completions, GET /v1/models and GET /health";
            let problem = format!("{} {path} is not here: {there}", request.method());
            Err(Refusal::with(StatusCode::NOT_FOUND, problem))
        }
    }
}

/// Refuses who does not know the token.
fn check_token(request: &Request<Incoming>, served: &Served) -> Result<(), Refusal> {
    let Some(token) = &served.token else { return Ok(()) };
    let given = request.headers().get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let is_right = given.ct_eq(format!("Bearer {token}").as_bytes());
    if is_right.into() {
        return Ok(());
    }
    let problem =
        "the header Authorization has to be `Bearer TOKEN`, with the token of this server (--token)";
    Err(Refusal::with(StatusCode::UNAUTHORIZED, problem).coded("invalid_api_key"))
}

/// A text that a request asks for.
async fn written(kind: Kind, request: Request<Incoming>, served: &Served) -> Result<Response<Body>, Refusal> {
    // A page of a browser may send other types to any address without asking.
    let media = request.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    if !media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let problem = "the header Content-Type has to be application/json";
        return Err(Refusal::with(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem));
    }
    let body = body(request).await?;
    let request = parse::read(kind, &body, served)?;
    let head = Head::new(served, &request);
    let (to, told) = mpsc::unbounded_channel();
    if !served.queue.push(Job { request: request.clone(), to }) {
        if served.queue.is_closed() {
            return Err(ending());
        }
        let problem = "too many requests wait already: try again later";
        return Err(Refusal::with(StatusCode::SERVICE_UNAVAILABLE, problem).coded("overloaded"));
    }
    if request.stream {
        let events = stream::body(head, told, &request);
        return Ok(with(StatusCode::OK, "text/event-stream", StreamBody::new(events).boxed()));
    }
    Ok(said(StatusCode::OK, &whole(served, &request, &head, told).await?))
}

/// The body of a request.
async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let read = timeout(SLOWEST, Limited::new(request.into_body(), LARGEST).collect()).await;
    let read = read.map_err(|_| {
        let problem = format!("the body of the request took longer than {} s", SLOWEST.as_secs());
        Refusal::with(StatusCode::REQUEST_TIMEOUT, problem)
    })?;
    let body = read.map_err(|error| match error.is::<LengthLimitError>() {
        true => {
            let problem = format!("the body of the request is larger than {LARGEST} bytes");
            Refusal::with(StatusCode::PAYLOAD_TOO_LARGE, problem)
        }
        false => Refusal::new(format!("the body of the request is broken: {error}")),
    })?;
    Ok(body.to_bytes())
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = said(refusal.status, &refusal.json());
    let (name, value) = match refusal.status {
        StatusCode::UNAUTHORIZED => (WWW_AUTHENTICATE, "Bearer"),
        StatusCode::SERVICE_UNAVAILABLE => (RETRY_AFTER, "1"),
        _ => return response,
    };
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

fn said(status: StatusCode, value: &Value) -> Response<Body> {
    with(status, "application/json", Full::new(Bytes::from(value.to_string())).boxed())
}

fn with(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
