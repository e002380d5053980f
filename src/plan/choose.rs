//! Which of several settings is taken, when some are as fast as others.

use crate::plan::{AUTO, Setting};
use crate::schedule::Schedule;

/// Times that differ by no more than this share are equal: measured again, they come in another order. So are amounts of memory.
pub const TIE: f64 = 0.05;

/// A setting with what it takes.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// The setting.
    pub setting: &'a Setting,
    /// Seconds of a step.
    pub seconds: f64,
    /// The most that a rank holds for backwards to come, in bytes.
    pub memory: f64,
}

/// The place of the best in the list: of the fastest those that hold least, of these the simplest, of these the fastest. None in
/// an empty list.
///
/// Simple is a schedule with a name before `auto`, few stages on a rank, and a schedule that stands early in
/// [`Schedule::names`].
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

/// Those of some places whose figure is as small as the smallest.
fn least(places: &[usize], figure: impl Fn(usize) -> f64) -> Vec<usize> {
    let smallest = places
        .iter()
        .map(|&place| figure(place))
        .fold(f64::INFINITY, f64::min);
    let tied = |place: &usize| figure(*place) <= smallest * (1.0 + TIE);
    places.iter().copied().filter(tied).collect()
}

fn complexity(setting: &Setting) -> (bool, u32, Option<usize>) {
    let place = Schedule::names().position(|name| name == setting.schedule);
    (setting.schedule == AUTO, setting.chunks, place)
}
