//! A proxy before a server of S3, which makes faults. Each connection has one request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The most time that a read of the proxy waits, so that no test hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request, as the proxy sees it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Since the faults were set, from 0.
    pub(super) number: usize,
    pub(super) method: String,
    pub(super) path: String,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    /// The proxy answers it, with this status.
    Answer(u16),
    /// The connection is cut in the middle of the request.
    CutRequest,
    /// The server does it, and the connection is cut in the middle of the answer.
    CutAnswer,
}

type Faults = Box<dyn FnMut(&Asked) -> Fate + Send>;

#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) url: String,
    shared: Arc<Mutex<(Vec<Asked>, Faults)>>,
}

impl Proxy {
    pub(super) fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let shared: Arc<Mutex<(Vec<Asked>, Faults)>> =
            Arc::new(Mutex::new((Vec::new(), Box::new(|_: &Asked| Fate::Pass))));
        let (proxy, server) = (Self { url, shared }, server.to_owned());
        let accepting = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (proxy, server) = (accepting.clone(), server.clone());
                // A request that fails is what the test wants.
                thread::spawn(move || drop(proxy.serve(client, &server)));
            }
        });
        proxy
    }

    /// Sets the faults, and counts requests from 0 again.
    pub(super) fn fail(&self, faults: impl FnMut(&Asked) -> Fate + Send + 'static) {
        *self.shared.lock().expect("nobody has panicked") = (Vec::new(), Box::new(faults));
    }

    /// No more faults.
    pub(super) fn heal(&self) {
        self.fail(|_| Fate::Pass);
    }

    /// The requests since the faults were set.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.shared.lock().expect("nobody has panicked").0.clone()
    }

    fn fate(&self, method: &str, path: &str) -> Fate {
        let mut shared = self.shared.lock().expect("nobody has panicked");
        let number = shared.0.len();
        let asked = Asked { number, method: method.to_owned(), path: path.to_owned() };
        shared.0.push(asked.clone());
        (shared.1)(&asked)
    }

    fn serve(&self, client: TcpStream, server: &str) -> std::io::Result<()> {
        client.set_read_timeout(Some(PATIENCE))?;
        let mut from = BufReader::new(client.try_clone()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if from.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        let fate = self.fate(method, path);
        if fate == Fate::CutRequest {
            let half = body.len() / 2;
            return from.read_exact(&mut body[..half]);
        }
        from.read_exact(&mut body)?;
        let answer = match fate {
            Fate::Answer(status) => refusal(status),
            _ => pass_on(&head, &body, server)?,
        };
        let shown = if fate == Fate::CutAnswer { answer.len() / 2 } else { answer.len() };
        let mut client = client;
        client.write_all(&answer[..shown])?;
        client.shutdown(Shutdown::Both)
    }
}

fn refusal(status: u16) -> Vec<u8> {
    let body = "<Error><Code>Fault</Code><Message>The proxy makes a fault.</Message></Error>";
    let length = body.len();
    format!("HTTP/1.1 {status} Fault\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into()
}

fn pass_on(head: &str, body: &[u8], server: &str) -> std::io::Result<Vec<u8>> {
    let mut to = TcpStream::connect(server)?;
    to.set_read_timeout(Some(PATIENCE))?;
    let lines = head.trim_end().lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head = lines.map(|line| format!("{line}\r\n")).collect::<String>() + "Connection: close\r\n\r\n";
    to.write_all(head.as_bytes())?;
    to.write_all(body)?;
    let mut answer = Vec::new();
    to.read_to_end(&mut answer)?;
    Ok(answer)
}
