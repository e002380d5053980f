//! Runs whose processes know a secret, and strangers at the port of a run.

use super::*;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;

const TOKEN: &str = "a secret of these tests";

/// Process `rank` of two, with this secret in its environment.
fn with_token(place: &Place, rank: u32, address: &str, token: &str) -> Command {
    let mut command = place.member(rank, 2, address, &["--weights-hash"]);
    command.env("PIPEWRIGHT_TOKEN", token);
    command
}

/// A file with this text, and these permissions.
#[cfg(unix)]
fn file(place: &Place, text: &str, mode: u32) -> String {
    let path = place.path("token");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    format!("launch.token_file={}", path.display())
}

#[test]
#[cfg(unix)]
fn a_secret_comes_from_a_file_or_from_the_environment_and_changes_no_weight() {
    let place = Place::new();
    let address = worlds::free_address();
    let by_variable = Started::new(with_token(&place, 0, &address, TOKEN));
    let set = file(&place, &format!("{TOKEN}\n"), 0o600);
    let mut by_file = place.member(1, 2, &address, &["--weights-hash", "--set", &set]);
    // The file counts.
    by_file.env("PIPEWRIGHT_TOKEN", "another secret of tests");
    let several = all_done(end_all(vec![by_variable, Started::new(by_file)]));
    let alone = place.alone(&["--weights-hash", "--run-dir", "alone"]).done();
    assert_eq!(several.hash(), alone.hash());
    let kept = place.text("runs/small/config.toml");
    assert!(!kept.contains(TOKEN), "{kept}");
}

#[test]
#[cfg(unix)]
fn a_secret_that_is_none_is_refused_before_anything_starts() {
    let place = Place::new();
    let refused = |set: &str, token: &str| {
        let mut command = place.member(0, 2, "127.0.0.1:1", &["--set", set]);
        command.env("PIPEWRIGHT_TOKEN", token);
        Started::new(command).end().failed(2)
    };
    let path = place.path("token").display().to_string();
    let length = "bytes, and a secret has 16 to 4096: make one by `openssl rand -hex 32`, and give it to all \
                  processes\n";
    let none = "launch.map=pipeline";
    assert_eq!(refused(none, "short"), format!("process 0: error: PIPEWRIGHT_TOKEN has 5 {length}"));
    for (text, bytes) in [("short \n", 5), ("", 0), (&"x".repeat(10_000), 8192)] {
        assert_eq!(
            refused(&file(&place, text, 0o600), ""),
            format!("process 0: error: launch.token_file: `{path}` has {bytes} {length}")
        );
    }
    for mode in [0o644, 0o640, 0o602] {
        assert_eq!(
            refused(&file(&place, TOKEN, mode), ""),
            format!(
                "process 0: error: launch.token_file: others can read `{path}` (its mode is {mode:04o}), so \
                 it may be no secret any more: make a new one by `openssl rand -hex 32`, after \
                 `chmod 600 {path}`\n"
            )
        );
    }
    assert_eq!(
        refused("launch.token_file=nowhere", ""),
        "process 0: error: launch.token_file: cannot read `nowhere`: No such file or directory (os error \
         2); write a secret there by `(umask 077; openssl rand -hex 32 > nowhere)`, the same on all hosts\n"
    );
    assert_eq!(
        refused("launch.token_file=/dev", ""),
        "process 0: error: launch.token_file: `/dev` is no file; give a file with the secret of the run\n"
    );
}

#[test]
fn without_a_secret_other_hosts_are_neither_listened_to_nor_spoken_to() {
    let place = Place::new();
    for (rank, address) in [(0, "0.0.0.0:29500"), (1, "192.0.2.1:29500")] {
        let said = Started::new(place.member(rank, 2, address, &[])).end().failed(2);
        assert_eq!(
            said,
            format!(
                "process {rank}: error: {address} can be reached from other hosts, and the run has no \
                 secret: make one by `openssl rand -hex 32`, and give it to all processes, as \
                 PIPEWRIGHT_TOKEN or in a file that launch.token_file names; without one, all processes \
                 have to be on one host, at an address such as 127.0.0.1:29500\n"
            )
        );
    }
}

#[test]
fn a_process_with_another_secret_is_told_so_and_the_run_waits_for_the_right_one() {
    let place = Place::new();
    let address = worlds::free_address();
    let first = Started::new(with_token(&place, 0, &address, TOKEN));
    let said = Started::new(with_token(&place, 1, &address, "another secret of tests")).end().failed(2);
    assert_eq!(
        said,
        format!(
            "process 1: error: process 0 at {address} does not let this process in: it has another secret, \
             or none; give all processes the same one (PIPEWRIGHT_TOKEN or launch.token_file)\n"
        )
    );
    all_done(end_all(vec![first, Started::new(with_token(&place, 1, &address, TOKEN))]));
}

#[test]
fn a_secret_that_only_another_process_has_is_named_as_a_reason() {
    let place = Place::new();
    let address = worlds::free_address();
    let deadline = ["--set", "launch.deadline=10"];
    let first = Started::new(place.member(0, 2, &address, &deadline));
    let mut other = place.member(1, 2, &address, &deadline);
    other.env("PIPEWRIGHT_TOKEN", TOKEN);
    let mut ended = end_all(vec![first, Started::new(other)]);
    ended.remove(1).failed(2);
    let said = ended.remove(0).failed(2);
    has(&said, &["or it has a secret and process 0 has none: set PIPEWRIGHT_TOKEN everywhere, or nowhere"]);
}

#[test]
fn encryption_needs_a_secret_and_a_build_that_has_it() {
    let place = Place::new();
    let tls = ["--set", "launch.tls=true"];
    let said = Started::new(place.member(0, 2, "127.0.0.1:1", &tls)).end().failed(2);
    assert_eq!(
        said,
        "process 0: error: launch.tls needs a secret, by which the processes know each other: make one by \
         `openssl rand -hex 32`, and give it to all processes, as PIPEWRIGHT_TOKEN or in a file that \
         launch.token_file names\n"
    );
    if cfg!(feature = "tls") {
        return;
    }
    let mut command = place.member(0, 2, "127.0.0.1:1", &tls);
    command.env("PIPEWRIGHT_TOKEN", TOKEN);
    assert_eq!(
        Started::new(command).end().failed(2),
        "process 0: error: launch.tls is true, but this program was built without TLS: build it with \
         `cargo build --release --features tls`\n"
    );
}

/// The number of strangers at the port. Process 0 may have 256 files open.
const STRANGERS: usize = 200;

#[test]
#[cfg(unix)]
fn the_real_processes_get_in_when_200_strangers_are_connected_and_process_0_may_have_256_files() {
    let place = Place::new();
    let address = worlds::free_address();
    let program = with_token(&place, 0, &address, TOKEN);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(program.get_current_dir().unwrap());
    for (name, value) in program.get_envs() {
        limited.env(name, value.unwrap());
    }
    let first = Started::new(limited);
    let strangers: Vec<TcpStream> = (0..STRANGERS).map(|_| connected(&address)).collect();
    let second = Started::new(with_token(&place, 1, &address, TOKEN));
    all_done(end_all(vec![first, second]));
    drop(strangers);
}

fn connected(address: &str) -> TcpStream {
    let since = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_listener_that_says_nothing_holds_a_process_up_for_the_deadline_only() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut command = place.member(1, 2, &address, &["--set", "launch.deadline=1"]);
    command.env("PIPEWRIGHT_TOKEN", TOKEN);
    let since = Instant::now();
    let said = Started::new(command).end().failed(2);
    assert!(since.elapsed() < Duration::from_secs(6), "{said}");
    assert_eq!(
        said,
        format!(
            "process 1: error: what listens at {address} has said nothing for 1 s: is it process 0 of \
             this run?\n"
        )
    );
}

#[test]
#[cfg(all(feature = "tls", target_os = "linux"))]
fn encryption_changes_no_weight() {
    let place = Place::new();
    // Process 0 has an address of its own, as if it were alone on its host.
    let address = worlds::free_address().replace("127.0.0.1", "127.0.0.2");
    let member = |rank| {
        let args = ["--weights-hash", "--set", "launch.tls=true", "--set", "pipeline.stages=3"];
        let mut command = place.member(rank, 3, &address, &args);
        command.env("PIPEWRIGHT_TOKEN", TOKEN);
        Started::new(command)
    };
    let several = all_done(end_all((0..3).map(member).collect()));
    has(&several.stdout, &["encrypted"]);
    let alone = place.alone(&["--weights-hash", "--run-dir", "alone"]).done();
    assert_eq!(several.hash(), alone.hash());
}
