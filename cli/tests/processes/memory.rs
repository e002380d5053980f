//! The memory that the processes of one machine need together.

use super::*;

#[test]
fn processes_that_together_need_more_memory_than_their_machine_has_are_refused() {
    let place = Place::new();
    let train = |processes: u32, memory: &str| -> Vec<Ended> {
        let address = worlds::free_address();
        let start = |rank| {
            let mut command = place.member(rank, processes, &address, &["--steps", "1"]);
            command.env("PIPEWRIGHT_MEMORY", memory);
            Started::new(command)
        };
        end_all((0..processes).map(start).collect())
    };
    let run = train(1, "1GiB").swap_remove(0).done().stdout;
    let line = run.lines().find(|line| line.ends_with(" MiB in all, estimated"));
    let all: f64 = line.unwrap().split(' ').next().unwrap().parse().unwrap();
    fs::remove_dir_all(place.path("runs")).unwrap();
    // Each of the two needs less.
    for process in train(2, &format!("{}MiB", 0.75 * all)) {
        has(
            &process.failed(2),
            &[
                "training needs about ",
                " of memory in the 2 processes of this machine, and PIPEWRIGHT_MEMORY allows ",
            ],
        );
    }
    train(2, &format!("{}MiB", 1.05 * all)).swap_remove(0).done();
}
