//! Stalls in virtual time: told at the right moment, with the one who is the cause, and not told without one.

use pipewright::situation::{Root, Stall};

use super::*;

/// The shortest time that is told as a stall, in microseconds.
const LEAST: u64 = 5_000_000;

const HOUR: u64 = 3_600_000_000;

/// What was told.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<Stall>>>);

impl Told {
    pub(crate) fn listener(&self) -> impl Fn(&Stall) + Send + Sync + 'static {
        let told = Arc::clone(&self.0);
        move |stall| {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(stall.clone());
        }
    }

    fn take(&self) -> Vec<Stall> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether stalls were told if there was a reason, and only then.
    pub(crate) fn judge(&self, story: &Story, timeline: &Timeline) -> Result<(), String> {
        let told = self.take();
        let times = story.faults.iter().map(|fault| match fault {
            Fault::Slow { times, .. } => *times,
            _ => 1,
        });
        let slowest = 100 * times.product::<u64>();
        let may_stall = |fault: &Fault| match fault {
            Fault::Stops { micros, .. } | Fault::Down { micros, .. } => *micros > LEAST,
            _ => slowest > LEAST,
        };
        if let Some(stall) = told.first()
            && !story.faults.iter().any(may_stall)
        {
            return Err(format!("nothing explains this stall: {stall}"));
        }
        let jumps = |fault: &Fault| matches!(fault, Fault::ClockJumps { .. });
        let waited = timeline.time() > HOUR && !timeline.faults().any(jumps);
        match waited && told.is_empty() {
            true => Err("nobody was told of a stall".to_owned()),
            false => Ok(()),
        }
    }
}

/// Six steps of three ranks, with these faults. The first rank is slow.
fn story(times: u64, faults: &[Fault]) -> Story {
    let slow = Fault::Slow { rank: 0, times };
    Story {
        seed: 1,
        order: Order::Named { name: "1f1b", chunks: 1 },
        ranks: 3,
        micro_batches: 4,
        replicas: 1,
        shards: 1,
        sharded: false,
        sync: SyncMode::Reduce,
        model: Model { layers: 3, stages: 3, tied: false, large: false, divided: false },
        barrier: true,
        restarts: 0,
        snapshots: NonZeroU32::MIN,
        deeds: vec![Deed::Step; 6],
        weather: Weather { delay: 20, jitter: 0, reorders: false, loses: 0, doubles: 0 },
        faults: [&[slow], faults].concat(),
    }
}

/// What is told while a story happens, with stalls told by the times of earlier calls.
fn told(story: &Story) -> Vec<Stall> {
    let world = World::new(story.world(), story.seed, story.weather, story.faults.clone());
    let told = Told::default();
    let mut pipeline =
        trial::builder(story, &world, &Arc::<Numbers>::default(), &told).launch().expect("it starts");
    for _ in &story.deeds {
        pipeline.step().expect("it is only late");
    }
    world.end();
    drop(pipeline);
    assert_eq!(world.verdict(), None);
    told.take()
}

fn stops(rank: usize, at: u64) -> Fault {
    let micros = HOUR;
    Fault::Stops { rank, at, micros }
}

#[test]
fn a_rank_that_stands_still_for_an_hour_is_told_three_times_and_that_it_moves_again() {
    let told = told(&story(1000, &[stops(0, 3_000_000)]));
    let said: Vec<String> = told.iter().map(Stall::to_string).collect();
    let begins = [
        "nothing has moved for 5.0 s: rank 0 has been in 0",
        "still nothing has moved for 50.0 s: rank 0 has been in 0",
        "still nothing has moved for 500.0 s: rank 0 has been in 0",
        "it moves again, after 360",
    ];
    let is_right = said.iter().zip(begins).all(|(said, begin)| said.starts_with(begin));
    assert!(is_right && said.len() == begins.len(), "{said:#?}");
    let [Stall::Began { roots, .. }, ..] = &told[..] else {
        panic!("{said:#?}");
    };
    assert_eq!(roots, &[Root::Rank(WorldRank(0))]);
}

#[test]
fn layers_that_always_take_ten_seconds_are_no_stall() {
    // Also in the second step: the first one has shown it.
    assert!(told(&story(100_000, &[])).is_empty());
}

#[test]
fn after_an_hour_that_was_told_the_next_one_is_told_too() {
    let faults = [stops(0, 3_000_000), stops(1, HOUR + 5_000_000)];
    let told = told(&story(1000, &faults));
    let began = told.iter().filter(|stall| matches!(stall, Stall::Began { .. }));
    assert_eq!(began.count(), 2, "{told:?}");
}
