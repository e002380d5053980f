//! Notes of stop against messages: none overtakes another, all who wait are told, and a later attempt forgets
//! the notes of earlier ones and no other.

use super::{Call, End, Tag, Transport, WorldRank, every_order_of, gone};

const TAG: Tag = Tag(1);
const NEVER: Tag = Tag(2);

/// The call of an attempt.
fn call(attempt: u32) -> Call {
    let number = 1;
    Call { attempt, number }
}

/// The rank stops, and begins the call again.
fn again(end: &mut End<u32>, attempt: u32) {
    end.stop();
    end.begin(call(attempt)).expect("a later attempt has no past");
}

#[test]
fn what_was_sent_before_a_stop_arrives_and_then_the_stop_does() {
    every_order_of(
        4,
        3,
        [
            |mut end| {
                assert_eq!(end.wait(WorldRank(1), TAG).expect("it was sent before"), 7);
                assert_eq!(gone(end.wait(WorldRank(1), NEVER)), Some(1));
                // Also if it waits again.
                assert_eq!(gone(end.wait(WorldRank(1), NEVER)), Some(1));
            },
            |mut end| {
                let sent = end.send(WorldRank(0), TAG, 7);
                sent.expect("rank 0 waits for it");
            },
        ],
    );
}

/// Each inbox is full when both ranks stop: the one does not wait for room in the other's.
#[test]
fn two_ranks_stop_with_full_inboxes() {
    fn rank(mut end: End<u32>) {
        let peer = 1 - end.rank().0;
        let sent = gone(end.send(WorldRank(peer), TAG, 7));
        assert!(sent.is_none_or(|rank| rank == peer));
    }
    every_order_of(1, 3, [rank, rank]);
}

#[test]
fn all_who_wait_are_told_that_a_rank_has_stopped() {
    fn waits(mut end: End<u32>) {
        // The other one may have been told first, and stopped for that.
        assert!(gone(end.wait(WorldRank(2), TAG)).is_some());
    }
    every_order_of(8, 2, [waits, waits, |end| drop(end)]);
}

/// Rank 1 fails in the middle of a call, and both make it again. A note of the first attempt that comes in
/// the second one is forgotten. A wire of the second one that comes in the first one is kept.
#[test]
fn a_later_attempt_begins_without_the_stops_of_the_one_before() {
    every_order_of(
        16,
        3,
        [
            |mut end| {
                end.begin(call(0)).expect("nobody has stopped");
                assert_eq!(gone(end.wait(WorldRank(1), TAG)), Some(1));
                again(&mut end, 1);
                assert_eq!(end.wait(WorldRank(1), TAG).expect("nobody stops"), 7);
                end.send(WorldRank(1), TAG, 8).expect("rank 1 waits for it");
            },
            |mut end| {
                end.begin(call(0)).expect("nobody has stopped");
                again(&mut end, 1);
                end.send(WorldRank(0), TAG, 7).expect("nobody stops");
                assert_eq!(end.wait(WorldRank(0), TAG).expect("nobody stops before"), 8);
            },
        ],
    );
}

/// A rank may stop between two calls. It has then stopped in the next one too.
#[test]
fn a_later_call_of_the_same_attempt_forgets_no_stop() {
    every_order_of(
        16,
        3,
        [
            |mut end| {
                end.begin(call(0)).expect("nobody has stopped");
                let polled = end.poll(WorldRank(1), TAG);
                assert!(gone(polled).is_none_or(|rank| rank == 1));
                let next = Call { number: 2, ..call(0) };
                end.begin(next).expect("it says nothing of stops");
                assert_eq!(gone(end.wait(WorldRank(1), TAG)), Some(1));
            },
            |mut end| {
                end.begin(call(0)).expect("nobody has stopped");
                end.stop();
                // It stays, and so does its other news.
                end.begin(call(1)).expect("a later attempt has no past");
                let _ = end.listen();
            },
        ],
    );
}

/// Rank 1 fails twice before rank 0 has noticed the first time. Rank 0 learns of both, one after the other or
/// at once, and goes on in the third attempt.
#[test]
fn a_stop_of_a_later_attempt_is_not_forgotten_with_an_earlier_one() {
    every_order_of(
        16,
        3,
        [
            |mut end| {
                end.begin(call(0)).expect("nobody has stopped");
                for attempt in 1..3 {
                    assert_eq!(gone(end.wait(WorldRank(1), TAG)), Some(1));
                    again(&mut end, attempt);
                }
                assert_eq!(end.wait(WorldRank(1), TAG).expect("nobody stops"), 7);
                end.send(WorldRank(1), TAG, 8).expect("rank 1 waits for it");
            },
            |mut end| {
                end.begin(call(0)).expect("nobody has stopped");
                again(&mut end, 1);
                again(&mut end, 2);
                end.send(WorldRank(0), TAG, 7).expect("nobody stops");
                assert_eq!(end.wait(WorldRank(0), TAG).expect("nobody stops before"), 8);
            },
        ],
    );
}

/// Rank 1 is an attempt ahead and stops there. Rank 0, still in the one before, stops too: it must not forget
/// that stop when it comes to the later attempt.
#[test]
fn a_rank_that_stops_late_remembers_the_stop_of_an_attempt_to_come() {
    every_order_of(
        16,
        3,
        [
            |mut end| {
                end.begin(call(0)).expect("nobody has stopped");
                assert_eq!(gone(end.wait(WorldRank(1), TAG)), Some(1));
                end.stop();
                // The attempt in which rank 1 has stopped.
                if end.begin(call(1)).is_ok() {
                    assert_eq!(gone(end.wait(WorldRank(1), TAG)), Some(1));
                }
                again(&mut end, 2);
                assert_eq!(end.wait(WorldRank(1), TAG).expect("nobody stops"), 7);
                end.send(WorldRank(1), TAG, 8).expect("rank 1 waits for it");
            },
            |mut end| {
                end.begin(call(1)).expect("nobody has stopped in it");
                again(&mut end, 2);
                end.send(WorldRank(0), TAG, 7).expect("nobody stops");
                assert_eq!(end.wait(WorldRank(0), TAG).expect("nobody stops before"), 8);
            },
        ],
    );
}
