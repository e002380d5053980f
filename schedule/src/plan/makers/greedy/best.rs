//! Tries several policies and keeps the best.

use super::lister;
use super::policy::Policy;
use super::task::{Goal, Listed, Task};

/// How many passes [`best`] lists at most. After [`AT_LEAST`] policies it stops once it has listed that many.
const BUDGET: usize = 3_000_000;

const AT_LEAST: usize = 3;

/// Whether one score is better than another by more than a rounding error.
fn better(a: [f64; 2], b: [f64; 2]) -> bool {
    let less = |at: usize| a[at] < b[at] * (1.0 - 1e-9);
    let more = |at: usize| b[at] < a[at] * (1.0 - 1e-9);
    less(0) || !more(0) && less(1)
}

/// Tries these policies, the most promising first, and returns the best one with its listing. It tries at
/// least one. It stops when the search takes too long or when no order can be better. `None` when the memory
/// cannot hold one micro-batch.
pub(crate) fn best(
    task: &Task<'_>,
    policies: impl IntoIterator<Item = Policy>,
    goal: Goal,
) -> Option<(Policy, Listed)> {
    let mut best: Option<(Policy, Listed)> = None;
    let bound = task.bound(goal);
    let all = 3 * task.stages.len() * task.micro_batches as usize;
    let mut listed = 0;
    for (tried, policy) in policies.into_iter().enumerate() {
        let enough = |(_, best): &(Policy, Listed)| {
            tried >= AT_LEAST && listed > BUDGET || !better(bound, best.score(goal))
        };
        if best.as_ref().is_some_and(enough) {
            break;
        }
        let next = lister::list(task, &policy)?;
        listed += next.count();
        let first = |(_, best): &(Policy, Listed)| !better(next.score(goal), best.score(goal));
        if next.count() == all && !best.as_ref().is_some_and(first) {
            best = Some((policy, next));
        }
    }
    best
}
