//! A page that follows its run.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::*;

/// A page that is served. It ends with the test.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn new(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(&[&["report"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.strip_prefix("http://").and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_else(|| panic!("{said}")).to_owned();
        Self { child, address }
    }

    fn get(&self, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_served_page_follows_the_run_until_ctrl_c() {
    let place = Place::empty();
    place.make("live", 3);
    let mut served = Served::new(&place, &["live", "--serve=0"]);
    assert!(served.address.starts_with("127.0.0.1:"), "{}", served.address);
    let page = served.get(&served.address, "/");
    has(&page, &["HTTP/1.1 200 OK", "text/html; charset=utf-8", "no-store", "<body data-live>", "3 of 700"]);
    let metrics = place.path("live/metrics.jsonl");
    let before = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, before.clone() + &line(3, 1.0)).unwrap();
    has(&served.get("localhost", "/"), &["4 of 700"]);
    // A run that is resumed cuts off the steps that it repeats, and may soon have written more than before.
    let first = before.lines().next().unwrap().to_owned() + "\n";
    fs::write(&metrics, &first).unwrap();
    has(&served.get("[::1]", "/"), &["1 of 700"]);
    fs::write(&metrics, first.clone() + &line(1, 0.5) + &line(2, 0.5)).unwrap();
    has(&served.get("localhost", "/"), &["3 of 700"]);
    let longer: String = (1..9).map(|step| line(step, 1.234567)).collect();
    fs::write(&metrics, first + &longer).unwrap();
    let page = served.get("localhost", "/");
    has(&page, &["9 of 700"]);
    assert!(!page.contains("left out"), "no line is damaged");
    has(&served.get("localhost", "/favicon.ico"), &["404 Not Found"]);
    has(&served.get("elsewhere.example", "/"), &["421 Misdirected Request"]);
    fs::remove_file(&metrics).unwrap();
    has(&served.get("localhost", "/"), &["503 Service Unavailable", "there is no run in live"]);
    assert!(!place.path("live/report.html").exists());
    signal(&served.child, "-INT");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn strangers_that_say_nothing_or_half_do_not_shut_the_page() {
    let place = Place::empty();
    place.make("live", 3);
    let served = Served::new(&place, &["live", "--serve=0"]);
    for half in ["", "GET / HTTP/1.1\r\nHost: loc"] {
        let strangers: Vec<TcpStream> = (0..500)
            .map(|_| {
                let mut stream = TcpStream::connect(&served.address).unwrap();
                // It may be closed already.
                let _ = stream.write_all(half.as_bytes());
                stream
            })
            .collect();
        has(&served.get("LOCALHOST", "/"), &["200 OK", "3 of 700"]);
        let open = fs::read_dir(format!("/proc/{}/fd", served.child.id()));
        assert!(open.is_ok_and(|open| open.count() < 40), "few connections are held");
        drop(strangers);
    }
}

#[test]
fn an_address_that_cannot_be_used_is_refused_and_one_that_others_reach_is_a_warning() {
    let place = Place::empty();
    place.make("live", 3);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = place.report(&["live", &format!("--serve={port}")]).refused();
    assert!(said.starts_with(&format!("error: cannot serve the page on 127.0.0.1:{port}: ")), "{said}");
    assert!(said.ends_with("; choose another port with --serve=PORT\n"), "{said}");
    let said = place.report(&["live", "--serve=port"]).refused();
    has(&said, &["expected a port such as 6080, or an address and a port"]);
    has(&place.report(&["live", "--serve", "--out", "x.html"]).refused(), &["cannot be used with"]);
    let mut command = place.command(&["report", "live", "--serve=0.0.0.0:0"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.starts_with("warning: whoever reaches 0.0.0.0:"), "{said}");
}
