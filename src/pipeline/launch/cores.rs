//! The cores that threads are pinned to.

use std::collections::HashSet;
use std::fs;

use core_affinity::CoreId;

/// One core for each thread, and a core's second hardware thread only when all cores have been given. Empty
/// when there are fewer hardware threads than threads, or only one thread.
pub fn cores(pin: bool, threads: usize) -> Vec<CoreId> {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    if pin && threads > 1 && allowed.len() >= threads { spread(allowed, siblings) } else { Vec::new() }
}

/// The hardware threads of the core that this one belongs to, as Linux lists them.
fn siblings(CoreId { id }: CoreId) -> Option<String> {
    fs::read_to_string(format!("/sys/devices/system/cpu/cpu{id}/topology/thread_siblings_list")).ok()
}

/// The first hardware thread of each core, then all others. Where cores are not known, the order stays.
fn spread(allowed: Vec<CoreId>, siblings: impl Fn(CoreId) -> Option<String>) -> Vec<CoreId> {
    let mut taken = HashSet::new();
    let is_first = |thread: &CoreId| siblings(*thread).is_none_or(|core| taken.insert(core));
    let (mut first, others): (Vec<_>, Vec<_>) = allowed.into_iter().partition(is_first);
    first.extend(others);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(allowed: &[usize], siblings: impl Fn(usize) -> Option<String>) -> Vec<usize> {
        let allowed = allowed.iter().map(|id| CoreId { id: *id }).collect();
        let spread = spread(allowed, |thread| siblings(thread.id));
        spread.into_iter().map(|thread| thread.id).collect()
    }

    #[test]
    fn two_threads_share_a_core_only_when_every_core_has_one() {
        let neighbours = |id: usize| Some(format!("{}-{}", id & !1, id | 1));
        assert_eq!(order(&[0, 1, 2, 3, 4, 5], neighbours), [0, 2, 4, 1, 3, 5]);
        let far = |id: usize| Some(format!("{},{}", id % 3, id % 3 + 3));
        assert_eq!(order(&[0, 1, 2, 3, 4, 5], far), [0, 1, 2, 3, 4, 5]);
        assert_eq!(order(&[1, 3, 4, 5], neighbours), [1, 3, 4, 5]);
        assert_eq!(order(&[2, 3, 0], |_| None), [2, 3, 0]);
    }
}
