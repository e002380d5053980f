//! What ranks send each other arrives, no matter who is faster, and nobody sleeps for ever.

use super::inbox::inbox;
use super::packet::{Content, Packet};
use super::{Call, End, Tag, Transport, WorldRank, every_order_of};

const FIRST: Tag = Tag(1);
const SECOND: Tag = Tag(2);

fn sends_to(end: &mut End<u32>, peer: u32, tag: Tag, wire: u32) {
    end.send(WorldRank(peer), tag, wire).expect("nobody stops");
}

fn takes_from(end: &mut End<u32>, peer: u32, tag: Tag) -> u32 {
    end.wait(WorldRank(peer), tag).expect("nobody stops")
}

#[test]
fn a_rank_that_sleeps_is_woken_by_what_comes() {
    every_order_of(
        4,
        3,
        [
            |mut end| {
                assert_eq!(takes_from(&mut end, 1, FIRST), 1);
                sends_to(&mut end, 1, SECOND, 2);
                let _ = end.listen();
            },
            |mut end| {
                sends_to(&mut end, 0, FIRST, 1);
                assert_eq!(takes_from(&mut end, 0, SECOND), 2);
            },
        ],
    );
}

#[test]
fn wires_are_taken_in_another_order_than_they_come() {
    every_order_of(
        4,
        3,
        [
            |mut end| {
                let wires = [SECOND, FIRST].map(|tag| takes_from(&mut end, 1, tag));
                assert_eq!(wires, [2, 1]);
            },
            |mut end| {
                sends_to(&mut end, 0, FIRST, 1);
                sends_to(&mut end, 0, SECOND, 2);
            },
        ],
    );
}

/// Inboxes with room for one packet: each rank finds the other's full, and makes room in its own.
#[test]
fn two_ranks_do_not_wait_for_room_in_each_others_inbox() {
    fn rank(mut end: End<u32>) {
        let peer = 1 - end.rank().0;
        for (tag, wire) in [(FIRST, 1), (SECOND, 2)] {
            sends_to(&mut end, peer, tag, wire);
        }
        // Without the next line a note of stop could come first: that is another test.
        let wires = [FIRST, SECOND].map(|tag| takes_from(&mut end, peer, tag));
        assert_eq!(wires, [1, 2]);
        let _ = end.listen();
    }
    every_order_of(1, 2, [rank, rank]);
}

#[test]
fn whoever_polls_for_several_and_listens_misses_none() {
    every_order_of(
        8,
        2,
        [
            |mut end| {
                let mut missing = vec![1, 2];
                while !missing.is_empty() {
                    let before = missing.len();
                    missing.retain(|peer| {
                        let wire = end.poll(WorldRank(*peer), FIRST).expect("nobody stops yet");
                        wire.inspect(|wire| assert_eq!(wire, peer)).is_none()
                    });
                    if before == 2 && missing == [2] {
                        sends_to(&mut end, 2, SECOND, 0);
                    }
                    if missing.len() == before {
                        end.listen().expect("nobody stops yet");
                    }
                }
            },
            |mut end| {
                sends_to(&mut end, 0, FIRST, 1);
                // It stays until the receiver has all: that one stops.
                let _ = end.wait(WorldRank(0), SECOND);
            },
            |mut end| {
                // Nothing comes from here before the receiver has found what rank 1 has sent.
                takes_from(&mut end, 0, SECOND);
                sends_to(&mut end, 0, FIRST, 2);
                let _ = end.wait(WorldRank(0), SECOND);
            },
        ],
    );
}

/// A thread that reads from another process waits for room in the inbox of a rank that stops.
#[test]
fn nobody_waits_for_room_in_an_inbox_that_is_closed() {
    loom::model(|| {
        let (sender, mut inbox) = inbox::<u32>(usize::MAX, 1);
        let reader = loom::thread::spawn(move || {
            for wire in 0..3 {
                let content = Content::Wire(FIRST, wire);
                // A rank that has stopped does not need it.
                let _ = sender.send(Packet::new(WorldRank(1), Call::default(), content));
            }
        });
        inbox.take_in().expect("nobody has stopped");
        inbox.close();
        reader.join().expect("no panic");
    });
}
