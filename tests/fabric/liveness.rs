//! A process that is stopped is not gone. A process whose machine is gone is.

use std::net::ToSocketAddrs;
use std::process::ChildStdout;

use super::*;
use crate::skipped::skipped;

/// The variable that tells a process of these tests its number and address.
const PLACE: &str = "PIPEWRIGHT_TEST_PLACE";

/// How long another machine may be silent.
const SILENCE: Duration = Duration::from_secs(2);

/// More than the buffers of sockets hold while nobody reads.
const BLOCKS: usize = 64;

fn membership(process: u32, processes: u32, address: &str) -> Membership {
    Membership {
        process,
        processes,
        address: address.to_owned(),
        deadline: Duration::from_secs(60),
        silence: SILENCE,
        // The machines of a cable are two.
        secret: Some(crate::gate::secret(crate::gate::SECRET)),
        tls: false,
        replaces: false,
        fewest: processes,
    }
}

fn join(process: u32, processes: u32, address: &str) -> (End<Number>, Peers) {
    let world = World::join(&membership(process, processes, address), "the same").expect("all come");
    let mesh = mesh(processes, processes);
    let (mut ends, peers) = fabric::ends(world, &mesh, 2, ROOM).expect("connected");
    (ends.pop().expect("one rank"), peers)
}

/// Starts this test program again, as process `process`, with this test alone.
fn again(mut command: Command, test: &str, process: u32, address: &str) -> Child {
    command
        .args([&format!("liveness::{test}"), "--exact", "--nocapture"])
        .env(PLACE, format!("{process} {address}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

fn this_program() -> std::path::PathBuf {
    std::env::current_exe().expect("the program knows itself")
}

/// The number and address of this process, if a test started it.
fn place() -> Option<(u32, String)> {
    let place = std::env::var(PLACE).ok()?;
    let (process, address) = place.split_once(' ')?;
    Some((process.parse().ok()?, address.to_owned()))
}

fn signal(child: &Child, signal: &str) {
    let done = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(done.expect("kill is there").success());
}

#[test]
fn a_process_that_is_stopped_for_longer_than_the_silence_goes_on() {
    const NAME: &str = "a_process_that_is_stopped_for_longer_than_the_silence_goes_on";
    if let Some((process, address)) = place() {
        let (mut end, _peers) = join(process, 2, &address);
        end.send_bytes(WorldRank(0), Tag(0), Vec::new()).expect("sent");
        let bytes = (0..BLOCKS).map(|_| end.recv_bytes(WorldRank(0), Tag(0)).expect("it goes on").len());
        let all = bytes.sum::<usize>() as u64;
        end.send_bytes(WorldRank(0), Tag(0), all.to_le_bytes().to_vec()).expect("sent");
        end.recv_bytes(WorldRank(0), Tag(0)).expect("the end of the test");
        return;
    }
    let address = free_address();
    let mut child = again(Command::new(this_program()), NAME, 1, &address);
    let (mut end, _peers) = join(0, 2, &address);
    end.recv_bytes(WorldRank(1), Tag(0)).expect("it is there");
    signal(&child, "-STOP");
    let stopped = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(2 * SILENCE);
            signal(&child, "-CONT");
        });
        for _ in 0..BLOCKS {
            end.send_bytes(WorldRank(1), Tag(0), vec![7; 1 << 20]).expect("it is not gone");
        }
    });
    let all = end.recv_bytes(WorldRank(1), Tag(0)).expect("it goes on");
    assert_eq!(all, ((BLOCKS as u64) << 20).to_le_bytes());
    assert!(stopped.elapsed() >= 2 * SILENCE, "nothing waited for it");
    end.send_bytes(WorldRank(1), Tag(0), Vec::new()).expect("sent");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_rank_that_sends_to_a_stopped_process_learns_that_another_has_ended() {
    const NAME: &str = "a_rank_that_sends_to_a_stopped_process_learns_that_another_has_ended";
    if let Some((process, address)) = place() {
        let (mut end, _peers) = join(process, 3, &address);
        end.send_bytes(WorldRank(0), Tag(0), Vec::new()).expect("sent");
        // It is stopped, or killed, here.
        let _ = end.recv_bytes(WorldRank(0), Tag(0)).and_then(|_| end.recv_bytes(WorldRank(0), Tag(0)));
        return;
    }
    let address = free_address();
    let start = |process| again(Command::new(this_program()), NAME, process, &address);
    let mut children = [1, 2].map(start);
    let (mut end, _peers) = join(0, 3, &address);
    for rank in [1, 2].map(WorldRank) {
        end.recv_bytes(rank, Tag(0)).expect("it is there");
    }
    signal(&children[0], "-STOP");
    signal(&children[1], "-KILL");
    let sent = (0..BLOCKS).try_for_each(|_| end.send_bytes(WorldRank(1), Tag(0), vec![7; 1 << 20]));
    let error = sent.expect_err("nobody reads so much");
    assert!(matches!(error, Error::PeerGone(_)), "{error}");
    for child in &mut children {
        child.kill().expect("it has not been waited for");
        child.wait().expect("it ends");
    }
}

/// Two machines with a cable between them; none where the system allows no network namespaces.
struct Machines(u32);

impl Machines {
    fn new() -> Option<Self> {
        let machines = Self(std::process::id());
        let [a, b] = [machines.name(0), machines.name(1)];
        let made = ip(&["netns", "add", &a])
            && ip(&["netns", "add", &b])
            && ip(&["-n", &a, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", &b])
            && [(&a, "10.77.0.1/24"), (&b, "10.77.0.2/24")].iter().all(|(name, address)| {
                ip(&["-n", name, "addr", "add", address, "dev", "cable"])
                    && ip(&["-n", name, "link", "set", "cable", "up"])
            });
        if !made {
            skipped("the system allows no network namespaces, or has no `ip`");
        }
        made.then_some(machines)
    }

    fn name(&self, machine: u32) -> String {
        format!("pipewright-{}-{machine}", self.0)
    }

    fn command(&self, machine: u32) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(machine)]).arg(this_program());
        command
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in 0..2 {
            ip(&["netns", "del", &self.name(machine)]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    let done = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// A machine on which the name `two` has two addresses. The first one swallows what it is sent.
struct Swallowing(String);

impl Swallowing {
    const HOSTS: &str = "192.0.2.1 two\n127.0.0.1 two\n";
    /// In this order.
    const ORDER: &str = "precedence ::ffff:192.0.2.0/120 100\nprecedence ::ffff:0:0/96 10\n";

    fn new() -> Option<Self> {
        let machine = Self(format!("pipewright-{}-names", std::process::id()));
        let name = machine.0.as_str();
        let files = std::fs::create_dir_all(machine.files())
            .and_then(|()| std::fs::write(machine.files().join("hosts"), Self::HOSTS))
            .and_then(|()| std::fs::write(machine.files().join("gai.conf"), Self::ORDER));
        let in_it = |arguments: &[&str]| ip(&[&["-n", name], arguments].concat());
        let made = files.is_ok()
            && ip(&["netns", "add", name])
            && in_it(&["link", "set", "lo", "up"])
            && in_it(&["link", "add", "cable", "type", "veth", "peer", "name", "nobody"])
            && in_it(&["addr", "add", "192.0.2.2/24", "dev", "cable"])
            && in_it(&["link", "set", "cable", "up"])
            && in_it(&["link", "set", "nobody", "up"])
            && in_it(&["neigh", "add", "192.0.2.1", "lladdr", "02:00:00:00:00:01", "dev", "cable"]);
        if !made {
            skipped("the system allows no network namespaces, or has no `ip`");
        }
        made.then_some(machine)
    }

    /// Where `ip` finds what stands for files of /etc.
    fn files(&self) -> std::path::PathBuf {
        std::path::Path::new("/etc/netns").join(&self.0)
    }
}

impl Drop for Swallowing {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.0]);
        // Where they could not be written there is nothing to remove.
        let _ = std::fs::remove_dir_all(self.files());
    }
}

#[test]
fn a_name_whose_first_address_swallows_what_it_is_sent_is_reached_at_the_second() {
    const NAME: &str = "a_name_whose_first_address_swallows_what_it_is_sent_is_reached_at_the_second";
    if let Some((process, address)) = place() {
        let first = address.to_socket_addrs().expect("it is known").next();
        assert_eq!(first, Some(([192, 0, 2, 1], 29500).into()));
        let (_end, peers) = join(process, 2, &address);
        peers.share("a test", Ok(Vec::new())).expect("both are here");
        return;
    }
    let Some(machine) = Swallowing::new() else { return };
    let start = |process| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &machine.0]).arg(this_program());
        again(command, NAME, process, "two:29500")
    };
    for mut child in [0, 1].map(start) {
        assert!(child.wait().expect("it ends").success());
    }
}

/// Reads until this line.
fn await_line(from: &mut BufReader<ChildStdout>, wanted: &str) {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        let read = from.read_line(&mut line).expect("it speaks");
        assert!(read > 0, "it ended without `{wanted}`");
    }
}

#[test]
fn a_machine_whose_cable_is_cut_is_gone_for_both_whether_they_send_or_wait() {
    const NAME: &str = "a_machine_whose_cable_is_cut_is_gone_for_both_whether_they_send_or_wait";
    if let Some((process, address)) = place() {
        let (mut end, peers) = join(process, 2, &address);
        let peer = WorldRank(1 - process);
        end.send_bytes(peer, Tag(0), Vec::new()).expect("sent");
        end.recv_bytes(peer, Tag(0)).expect("it is there");
        println!("connected");
        // Process 0 sends more than anybody receives; process 1 waits.
        let error = loop {
            let done = match process {
                0 => end.send_bytes(peer, Tag(0), vec![7; 1 << 20]),
                _ => end.recv_bytes(peer, Tag(0)).map(|_| ()),
            };
            if let Err(error) = done {
                break error.to_string();
            }
        };
        let lost = peers.share("a test", Ok(Vec::new())).expect_err("it is gone");
        println!("{error}; {lost}.");
        return;
    }
    let Some(machines) = Machines::new() else { return };
    let start = |process| again(machines.command(process), NAME, process, "10.77.0.1:29500");
    let mut children = [0, 1].map(start);
    let mut said =
        [0, 1].map(|process: usize| BufReader::new(children[process].stdout.take().expect("it was piped")));
    said.iter_mut().for_each(|said| await_line(said, "connected"));
    assert!(ip(&["-n", &machines.name(0), "link", "set", "cable", "down"]));
    for process in 0..2 {
        let mut rest = String::new();
        said[process].read_to_string(&mut rest).expect("it ends");
        let other = 1 - process;
        let expected = format!(
            "rank {other} has stopped; process {other} has stopped without saying why: its machine does not \
             answer any more"
        );
        has(&rest, &[&expected]);
        assert!(children[process].wait().expect("it ends").success());
    }
}

/// How many sockets this process has, and how many threads.
fn sockets_and_threads() -> [usize; 2] {
    let entries =
        |path| std::fs::read_dir(path).expect("this is Linux").map(|entry| entry.expect("an entry"));
    let files = entries("/proc/self/fd").filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets = files.filter(|file| file.to_string_lossy().starts_with("socket:"));
    [sockets.count(), entries("/proc/self/task").count()]
}

#[test]
#[cfg(target_os = "linux")]
fn ends_need_no_more_files_than_connections_and_leave_no_socket_and_no_thread() {
    const NAME: &str = "ends_need_no_more_files_than_connections_and_leave_no_socket_and_no_thread";
    if let Some((_, address)) = place() {
        let before = sockets_and_threads();
        let world = World::join(&membership(0, 3, &address), "the same").expect("all come");
        assert!(sockets_and_threads()[0] >= before[0] + 4, "two lines to each of two");
        // No room for one file more.
        let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        let made = fabric::ends::<Number>(world, &mesh(3, 3), 3, ROOM);
        drop(files);
        let (ends, peers) = made.expect("it needs none");
        drop(ends);
        drop(peers);
        assert_eq!(sockets_and_threads(), before);
        return;
    }
    let address = free_address();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]).arg(this_program());
    let mut child = again(limited, NAME, 0, &address);
    let others = [1, 2].map(|process| {
        let address = address.clone();
        std::thread::spawn(move || {
            let (_end, peers) = join(process, 3, &address);
            let told = peers.share("a test", Ok(Vec::new()));
            told.expect_err("process 0 has left").to_string()
        })
    });
    for other in others {
        assert_eq!(other.join().expect("no panic"), "process 0: it has ended");
    }
    assert!(child.wait().expect("it ends").success());
}
