//! How long a rank usually stays where it is.

use std::collections::BTreeMap;
use std::time::Duration;

/// When a pipeline warns of a stall: nothing has moved for this long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StallWarning {
    /// Five times the longest time for which a rank has stayed where it was in earlier calls of the kind,
    /// such as training steps, but 5 seconds at least. In the first call of a kind 30 seconds: there, kernels
    /// are compiled and caches are filled. Its times count only in the second one, and up to these 30
    /// seconds. A stall that was told counts only up to the moment when it was told.
    #[default]
    ByTimes,
    /// After this time.
    After(Duration),
    /// Never.
    Never,
}

/// Longer than this is a stall, however short the steps are: a disk or a network may take so long.
const LEAST: Duration = Duration::from_secs(5);

/// The same in the first call of a kind.
const FIRST: Duration = Duration::from_secs(30);

/// How much longer than before is a stall.
const TIMES: u32 = 5;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct TypicalWait {
    warning: StallWarning,
    /// By the name of the call.
    seen: BTreeMap<String, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: u64,
    /// The longest time in the first call.
    first: Duration,
    /// The longest time after the first call.
    longest: Duration,
}

impl TypicalWait {
    pub(super) fn new(warning: StallWarning) -> Self {
        Self { warning, seen: BTreeMap::new() }
    }

    /// A rank has stayed where it was for this long.
    pub(super) fn stayed(&mut self, what: &str, time: Duration) {
        // A disk that hung for an hour must not keep the next stall from being told for five hours.
        let time = time.min(self.most(what).unwrap_or(Duration::MAX));
        let seen = self.seen(what);
        let longest = match seen.calls {
            0 => &mut seen.first,
            _ => &mut seen.longest,
        };
        *longest = time.max(*longest);
    }

    /// A call has ended.
    pub(super) fn ended(&mut self, what: &str) {
        self.seen(what).calls += 1;
    }

    fn seen(&mut self, what: &str) -> &mut Seen {
        if !self.seen.contains_key(what) {
            self.seen.insert(what.to_owned(), Seen::default());
        }
        self.seen.get_mut(what).expect("it was put there")
    }

    /// Longer than this is a stall. `None`: any time may pass.
    pub(super) fn most(&self, what: &str) -> Option<Duration> {
        match self.warning {
            StallWarning::Never => None,
            StallWarning::After(time) => Some(time),
            StallWarning::ByTimes => Some(match self.seen.get(what) {
                None | Some(Seen { calls: 0, .. }) => FIRST,
                Some(seen) => {
                    let first = match seen.calls {
                        1 => (seen.first * TIMES).min(FIRST),
                        _ => Duration::ZERO,
                    };
                    (seen.longest * TIMES).max(first).max(LEAST)
                }
            }),
        }
    }
}
