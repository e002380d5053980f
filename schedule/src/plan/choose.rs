//! Which setting is chosen when several are equally fast.

use crate::plan::{AUTO, Setting};
use crate::schedule::Schedule;

/// Times that differ by no more than this share count as equal: a second measurement may order them
/// differently. The same holds for memory.
pub const TIE: f64 = 0.05;

/// A setting with its time and its memory.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// The setting.
    pub setting: &'a Setting,
    /// Seconds of a step.
    pub seconds: f64,
    /// The most that a rank holds for backwards to come, in bytes.
    pub memory: f64,
}

/// The index of the best contender; `None` in an empty list. The fastest come first. Among equally fast ones
/// the smallest in memory win, then the simplest, then the faster one.
///
/// A named schedule is simpler than `auto`. Fewer stages a rank are simpler than more. Of two named schedules
/// the simpler one comes earlier in [`Schedule::names`].
pub fn best(contenders: &[Contender<'_>]) -> Option<usize> {
    let all: Vec<usize> = (0..contenders.len()).collect();
    let fastest = least(&all, |place| contenders[place].seconds);
    let smallest = least(&fastest, |place| contenders[place].memory);
    smallest.into_iter().min_by(|&a, &b| {
        let (a, b) = (&contenders[a], &contenders[b]);
        let simpler = complexity(a.setting).cmp(&complexity(b.setting));
        simpler.then(a.seconds.total_cmp(&b.seconds))
    })
}

/// The indices whose figure ties with the smallest.
fn least(places: &[usize], figure: impl Fn(usize) -> f64) -> Vec<usize> {
    let smallest = places.iter().map(|&place| figure(place)).fold(f64::INFINITY, f64::min);
    let tied = |place: &usize| figure(*place) <= smallest * (1.0 + TIE);
    places.iter().copied().filter(tied).collect()
}

fn complexity(setting: &Setting) -> (bool, u32, Option<usize>) {
    let place = Schedule::names().position(|name| name == setting.schedule);
    (setting.schedule == AUTO, setting.chunks, place)
}
