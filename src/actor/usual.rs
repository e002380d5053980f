//! How long a rank usually stays where it is.

use std::collections::BTreeMap;
use std::time::Duration;

/// When a pipeline warns of a stall: nothing has moved for this long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StallWarning {
    /// Five times the longest time for which a rank has stayed where it was in earlier calls of the kind,
    /// such as training steps, but 5 seconds at least. In the first call of a kind 30 seconds: there, kernels
    /// are compiled and caches are filled.
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
pub(super) struct Usual {
    warning: StallWarning,
    /// By the name of the call.
    seen: BTreeMap<String, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: u64,
    /// After the first call.
    longest: Duration,
}

impl Usual {
    pub(super) fn new(warning: StallWarning) -> Self {
        Self {
            warning,
            seen: BTreeMap::new(),
        }
    }

    /// A rank has stayed where it was for this long.
    pub(super) fn stayed(&mut self, what: &str, time: Duration) {
        if let Some(seen) = self.seen.get_mut(what).filter(|seen| seen.calls > 0) {
            seen.longest = seen.longest.max(time);
        }
    }

    /// A call has ended.
    pub(super) fn ended(&mut self, what: &str) {
        match self.seen.get_mut(what) {
            Some(seen) => seen.calls += 1,
            None => {
                let (calls, longest) = (1, Duration::ZERO);
                self.seen.insert(what.to_owned(), Seen { calls, longest });
            }
        }
    }

    /// Longer than this is a stall. `None`: any time may pass.
    pub(super) fn most(&self, what: &str) -> Option<Duration> {
        match self.warning {
            StallWarning::Never => None,
            StallWarning::After(time) => Some(time),
            StallWarning::ByTimes => Some(match self.seen.get(what) {
                Some(seen) => (seen.longest * TIMES).max(LEAST),
                None => FIRST,
            }),
        }
    }
}
