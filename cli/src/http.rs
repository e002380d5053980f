//! A port at which one text can be read by HTTP: the page of a run, or its numbers for Prometheus.
//!
//! Anyone who reaches a port may open connections and say nothing, or half of a request. So there are few
//! connections at once, each for a short time and for one request, and the oldest gives way to a new one. A
//! web page from elsewhere may try to read what only this machine may (DNS rebinding). So a port that only
//! this machine reaches answers requests for this machine alone.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The most connections at once: more than a browser opens, and few of the files that a process may open.
const MOST: usize = 16;
/// How long a connection may last: for the request and for the answer.
const LONGEST: Duration = Duration::from_secs(20);
/// After a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// A text that is made anew for everybody who asks. If it cannot be made, the one who asked is told why.
pub(crate) struct Text<F> {
    /// Where it is: all other paths have nothing.
    pub(crate) path: &'static str,
    /// Its media type.
    pub(crate) kind: &'static str,
    pub(crate) make: F,
}

/// Listens at an address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers all who ask. It returns only if it cannot begin.
pub(crate) async fn serve<F>(listener: TcpListener, text: Text<F>) -> io::Result<Infallible>
where
    F: Fn() -> Result<String, String> + Send + Sync + 'static,
{
    serve_within(listener, text, LONGEST).await
}

async fn serve_within<F>(listener: TcpListener, text: Text<F>, longest: Duration) -> io::Result<Infallible>
where
    F: Fn() -> Result<String, String> + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let is_private = listener.local_addr()?.ip().is_loopback();
    let text = Arc::new(text);
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Somebody went away before, or too many files are open. Both pass.
            sleep(PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() == MOST
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
            // It is closed when its task has ended.
            let _ = oldest.await;
        }
        let text = Arc::clone(&text);
        open.push_back(tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = answer(&request, is_private, &text);
                async { Ok::<_, Infallible>(answer) }
            });
            let connection =
                http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
            // The one who asked has gone away, or was too slow. There is nobody to be told.
            let _ = timeout(longest, connection).await;
        }));
    }
}

fn answer<F>(request: &Request<Incoming>, is_private: bool, text: &Text<F>) -> Response<Full<Bytes>>
where
    F: Fn() -> Result<String, String>,
{
    if is_private && !is_for_this_machine(request) {
        let why = "this port is for this machine only: ask for localhost or for an address\n";
        return say(StatusCode::MISDIRECTED_REQUEST, why);
    }
    if request.uri().path() != text.path {
        let there = format!("there is one path here: {}\n", text.path);
        return say(StatusCode::NOT_FOUND, &there);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return say(StatusCode::METHOD_NOT_ALLOWED, "this can only be read\n");
    }
    match (text.make)() {
        Ok(made) => with_type(StatusCode::OK, text.kind, made),
        Err(why) => say(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n")),
    }
}

/// Whether a request is for an address or for `localhost`. Another name may belong to a page elsewhere, which
/// wants to read what only this machine may.
pub(crate) fn is_for_this_machine(request: &Request<Incoming>) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let named = request.uri().authority().map(Authority::as_str);
    host.is_some_and(names_this_machine) && named.is_none_or(names_this_machine)
}

fn names_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || inner.unwrap_or(name).parse::<IpAddr>().is_ok()
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::thread;

    use super::*;

    /// The address of a port where `text` is, until the process ends.
    fn port(longest: Duration) -> SocketAddr {
        let listener = listen(([127, 0, 0, 1], 0).into()).expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let text = Text { path: "/text", kind: "text/plain", make: || Ok("text".to_owned()) };
            runtime.expect("a runtime").block_on(serve_within(listener, text, longest))
        });
        address
    }

    /// What comes back for these bytes until the other end closes.
    fn ask(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(bytes).expect("it takes them");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn status(address: SocketAddr, request: &str, host: &str) -> String {
        let answer = ask(address, format!("{request} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[test]
    fn one_path_is_read_by_names_of_this_machine_alone() {
        let address = port(LONGEST);
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:9400", "[::1]", "[::1]:1", "10.0.0.7"]
        {
            assert_eq!(status(address, "GET /text", host), "200", "{host}");
        }
        for host in ["elsewhere.example", "localhost.example", "", "[::1", "127.0.0.1.example:80"] {
            assert_eq!(status(address, "GET /text", host), "421", "{host}");
        }
        for (request, expected) in [
            ("HEAD /text", "200"),
            ("GET /text?x=1", "200"),
            ("GET http://localhost/text", "200"),
            ("GET http://elsewhere.example/text", "421"),
            ("POST /text", "405"),
            ("GET /", "404"),
            ("GET /text/../etc", "404"),
        ] {
            assert_eq!(status(address, request, "localhost"), expected, "{request}");
        }
        assert!(ask(address, b"GET /text HTTP/1.0\r\n\r\n").contains(" 421 "), "without a Host");
        let answer = ask(address, b"GET /text HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.ends_with("\r\n\r\ntext"), "it closes after one answer: {answer}");
        assert!(ask(address, b"HEAD /text HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("\r\n\r\n"));
    }

    #[test]
    fn the_oldest_connection_gives_way_and_a_slow_one_ends() {
        let address = port(LONGEST);
        let half = |_| {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(b"GET /text HTTP/1.1\r\n").expect("it takes them");
            stream
        };
        let mut held: Vec<TcpStream> = (0..2 * MOST).map(half).collect();
        assert_eq!(status(address, "GET /text", "localhost"), "200");
        for stream in &mut held[..MOST] {
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "it was closed");
        }
        let address = port(Duration::from_millis(20));
        assert_eq!(ask(address, b"GET /text HT"), "");
        assert_eq!(ask(address, b""), "");
    }
}
