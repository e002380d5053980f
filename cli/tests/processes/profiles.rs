//! What several processes measure of their links.

use pipewright::plan::LinkCost;
use pipewright_cli::compose;
use pipewright_cli::config::Config;
use pipewright_cli::profile::{Between, between};

use super::*;

#[test]
fn a_message_between_processes_of_one_host_is_measured_once() {
    for processes in [2, 3] {
        let measured = worlds::in_processes(processes, |world| between(world).unwrap());
        let Some(Between { link, one_host }) = measured[0] else {
            panic!("process 0 measures");
        };
        assert!(one_host);
        assert!(link.latency > 0.0 && link.per_byte >= 0.0, "{link:?}");
        assert_eq!(measured[1..], vec![None; processes as usize - 1]);
    }
}

/// Starts `profile` as one of two processes.
fn profile(place: &Place, rank: u32, address: &str, out: &str) -> Started {
    let mut command = Command::new(cargo_bin("pipewright"));
    let (host, port) = address.rsplit_once(':').unwrap();
    command
        .current_dir(place.path("."))
        .args(["profile", "my.toml", "--out", out])
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", "2")
        .env("MASTER_ADDR", host)
        .env("MASTER_PORT", port);
    Started::new(command)
}

#[test]
fn a_file_that_cannot_be_written_ends_all_processes_of_a_profile() {
    let place = Place::new();
    let address = worlds::free_address();
    let refused = "--out none/costs.json: there is no folder none: make it";
    for process in [0, 1].map(|rank| profile(&place, rank, &address, "none/costs.json")) {
        has(&process.end().failed(2), &[refused]);
    }
}

#[test]
fn a_profile_of_several_processes_has_their_link_and_is_written_once() {
    let place = Place::new();
    let address = worlds::free_address();
    let both = [0, 1].map(|rank| profile(&place, rank, &address, "costs.json"));
    let [first, second] = both.map(|process| process.end().done().stdout);
    has(&first, &["fabric    sockets between 2 processes: "]);
    has(&first, &["a message between two processes of one host: "]);
    assert_eq!(second, "");
    let text = place.text("costs.json");
    let costs: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(costs["between"]["one_host"], true);
    let link = LinkCost {
        latency: costs["between"]["latency"].as_f64().unwrap(),
        per_byte: costs["between"]["per_byte"].as_f64().unwrap(),
    };
    assert!(link.time(1e6) > 0.0 && costs["add"].as_f64().unwrap() > 0.0, "{costs}");
}

#[test]
fn only_as_many_ranks_work_at_once_as_a_host_has() {
    let at_once = |stages: u32, replicas: u32, hosts: u32| {
        let text = format!("[pipeline]\nstages = {stages}\nreplicas = {replicas}\n");
        let config = Config::parse("my.toml", &text, &[], &[]).unwrap();
        compose::at_once(&config, hosts).unwrap()
    };
    assert_eq!([1, 2, 3, 4, 9].map(|hosts| at_once(4, 1, hosts)), [4, 2, 2, 1, 1]);
    assert_eq!([1, 2, 4, 8].map(|hosts| at_once(4, 2, hosts)), [4, 4, 2, 1]);
    assert_eq!([1, 2].map(|hosts| at_once(1, 2, hosts)), [1, 1]);
}

/// Process 0 listens at an address of its own, so it is alone on its host.
#[cfg(target_os = "linux")]
#[test]
fn a_profile_of_two_hosts_measures_the_ranks_of_one() {
    let place = Place::new();
    let address = worlds::free_address().replace("127.0.0.1", "127.0.0.2");
    let both = [0, 1].map(|rank| profile(&place, rank, &address, "costs.json"));
    let [first, _] = both.map(|process| process.end().done());
    has(&first.stderr, &["measuring what each layer costs, with 1 rank at once, as on each of 2 hosts"]);
    has(&first.stdout, &["a message between two processes of two hosts: "]);
}
