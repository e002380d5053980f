//! Which setting `tune` chooses if several are equally fast.

use pipewright::plan::{Contender, best};

use super::*;

#[test]
fn of_settings_that_are_equally_fast_the_one_that_holds_least_is_best_and_then_the_simplest() {
    let setting = |schedule: &str, chunks| Setting {
        schedule: schedule.to_owned(),
        ranks: 2,
        chunks,
        micro_batches: 8,
        replicas: 1,
        gradient_groups: 1,
    };
    let settings = [
        setting("looped-bfs", 2),
        setting("auto", 1),
        setting("zb-h1", 1),
        setting("1f1b", 1),
        setting("gpipe", 1),
    ];
    let best_of = |figures: [(f64, f64); 5]| {
        let contenders = settings.iter().zip(figures);
        let contenders: Vec<_> =
            contenders.map(|(setting, (seconds, memory))| Contender { setting, seconds, memory }).collect();
        settings[best(&contenders).unwrap()].schedule.as_str()
    };
    let all = [(1.0, 900.0), (1.01, 500.0), (1.02, 510.0), (1.03, 500.0), (1.04, 900.0)];
    assert_eq!(best_of(all), "1f1b", "least memory, and the simplest of those");
    let fast = [(1.0, 900.0), (1.06, 500.0), (1.07, 510.0), (1.08, 500.0), (1.09, 900.0)];
    assert_eq!(best_of(fast), "looped-bfs", "nothing else is as fast");
    let heavy = [(1.0, 900.0), (1.0, 900.0), (1.0, 900.0), (1.0, 900.0), (1.0, 400.0)];
    assert_eq!(best_of(heavy), "gpipe", "it holds least");
    assert_eq!(best(&[]), None);
}
