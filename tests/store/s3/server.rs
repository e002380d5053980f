//! The server. `PIPEWRIGHT_S3` may name one, such as `http://127.0.0.1:5000`. Without it, the one of moto is
//! started here.

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::skipped::skipped;

/// How long the server may take to begin. Python is slow on a machine that is busy.
const BEGIN: Duration = Duration::from_secs(60);

static SERVER: LazyLock<Option<String>> = LazyLock::new(|| match env::var("PIPEWRIGHT_S3") {
    Ok(url) => Some(url.trim_start_matches("http://").trim_end_matches('/').to_owned()),
    Err(_) => begin(),
});

/// The server ends when this process does: its pipe is closed then.
static PROCESS: Mutex<Option<Child>> = Mutex::new(None);

/// A new bucket.
pub(super) struct Bucket {
    /// The address of the server.
    pub(super) server: String,
    pub(super) name: String,
    /// A place in the bucket.
    pub(super) url: String,
}

/// A new bucket of the server. `None` if there is no server, which is said.
pub(super) fn bucket() -> Option<Bucket> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let Some(server) = SERVER.clone() else {
        skipped("there is no server of S3: `.ci/run store` installs one");
        return None;
    };
    let name = format!("bucket-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    ask(&server, "PUT", &format!("/{name}"));
    let url = format!("s3://{name}/some/runs");
    Some(Bucket { server, name, url })
}

/// What the server answers to a request without credentials.
pub(super) fn ask(server: &str, method: &str, path: &str) -> String {
    let mut server_end = TcpStream::connect(server).expect("it is there");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    server_end.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    server_end.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// Starts moto, if it is installed.
fn begin() -> Option<String> {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tools/moto/bin/moto_server");
    let program = if installed.exists() { installed } else { PathBuf::from("moto_server") };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    // When this process has ended, in whatever way, `read` returns.
    let script = "\"$0\" -H 127.0.0.1 -p \"$1\" & server=$!; read _; kill $server";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&program).arg(port.to_string());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let is_known = Command::new(&program).arg("--help").output().is_ok();
    *PROCESS.lock().expect("nobody has panicked") = Some(child);
    let (address, begun) = (format!("127.0.0.1:{port}"), Instant::now());
    while is_known && begun.elapsed() < BEGIN {
        if TcpStream::connect(&address).is_ok() {
            return Some(address);
        }
        sleep(Duration::from_millis(100));
    }
    None
}
