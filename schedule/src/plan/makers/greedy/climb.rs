//! Improves a policy by small changes.

use super::lister;
use super::policy::{First, Policy, Rule};
use super::task::{Goal, Listed, Task};

/// The search stops after this many changes in a row without an improvement.
const PATIENCE: usize = 400;

/// How many passes are listed at most.
const BUDGET: usize = 10_000_000;

/// Changes one or two things of the policy at a time: a stage's limit or part of a rank's rule. Keeps a
/// change that is not worse. The changes come from a random generator with a fixed seed, so the same task
/// gives the same passes.
pub(crate) fn climb(task: &Task<'_>, mut policy: Policy, mut listed: Listed, goal: Goal) -> Listed {
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    let mut idle = 0;
    for _ in 0..BUDGET / listed.count().max(1) {
        let mut changed = policy.clone();
        for _ in 0..=draw.below(2) {
            change(&mut changed, &mut draw);
        }
        let next = lister::list(task, &changed).expect("the memory was enough for the policy before");
        if next.count() < listed.count() {
            continue;
        }
        idle = if next.score(goal) < listed.score(goal) { 0 } else { idle + 1 };
        if next.score(goal) <= listed.score(goal) {
            (policy, listed) = (changed, next);
        }
        if idle == PATIENCE {
            break;
        }
    }
    listed
}

fn change(policy: &mut Policy, draw: &mut Draw) {
    let stage = draw.below(policy.in_flight.len());
    let rank = draw.below(policy.rules.len());
    let Rule { first, patience, fill, even } = &mut policy.rules[rank];
    match draw.below(6) {
        0 => policy.in_flight[stage] = policy.in_flight[stage].saturating_sub(1).max(1),
        1 => policy.in_flight[stage] = policy.in_flight[stage].saturating_add(1),
        2 => *first = [First::Backward, First::Forward, First::InTurn][draw.below(3)],
        3 => *patience = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0][draw.below(6)],
        4 => *fill = [0.0, 0.25, 0.5, 0.75, 1.0][draw.below(5)],
        _ => *even = !*even,
    }
}

/// Marsaglia's xorshift (Journal of Statistical Software 8(14), 2003): pseudo-random numbers from a fixed
/// seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
