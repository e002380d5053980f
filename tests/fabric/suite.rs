//! The tests that every fabric must pass.

use std::thread;

use pipewright::Error;
use pipewright::fabric::{Call, Gathered, Tag, Transport, all_gather};
use pipewright::id::WorldRank;

use crate::Number;

type End = Box<dyn Transport<Number> + Send>;

fn call(number: u64) -> Call {
    Call::first(number)
}

/// `$connect` gives the connected ends of 2 or 4 ranks.
macro_rules! suite {
    ($($fabric:ident)*) => {$(
        mod $fabric {
            use super::*;
            use crate::$fabric as connect;

            fn pair() -> [End; 2] {
                connect(2).try_into().ok().expect("two ends")
            }

            fn four() -> [End; 4] {
                connect(4).try_into().ok().expect("four ends")
            }

            #[test]
            fn ends_know_their_rank() {
                for (rank, end) in (0..).zip(four()) {
                    assert_eq!((end.rank(), end.ranks()), (WorldRank(rank), 4));
                }
            }

            #[test]
            fn all_ranks_reach_all_and_themselves_in_one_common_order() {
                let exchange = |mut end: End| {
                    let own = WorldRank(end.rank().0);
                    let mut got = Vec::new();
                    let all = [0, 1, 2, 3].map(WorldRank);
                    for (from, to) in all.into_iter().flat_map(|from| all.map(|to| (from, to))) {
                        if own == from {
                            end.send(to, Tag(9), Number(10 * from.0 + to.0)).expect("sent");
                        }
                        if own == to {
                            end.post_recv(from, Tag(9)).expect("posted");
                            got.push(end.wait(from, Tag(9)).expect("arrives").0);
                        }
                    }
                    assert_eq!(got, [0, 10, 20, 30].map(|from| from + own.0));
                    end
                };
                // Dropping an end means that its rank has stopped. So each end lives until all have received
                // what they wait for.
                let threads = four().map(|end| thread::spawn(move || exchange(end)));
                let _ends = threads.map(|thread| thread.join().expect("no panic"));
            }

            #[test]
            fn whoever_asks_meanwhile_learns_that_a_peer_has_stopped() {
                let [a, mut b] = pair();
                b.check().expect("all is well");
                drop(a);
                let error = loop {
                    match b.check() {
                        Ok(()) => thread::yield_now(),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
            }

            #[test]
            fn a_tag_can_be_used_again_once_it_has_arrived() {
                let [mut a, mut b] = pair();
                for step in 0..3 {
                    a.send(WorldRank(1), Tag(7), Number(step)).expect("sent");
                    assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(step));
                }
            }

            #[test]
            fn equal_tags_from_several_ranks_are_several_wires() {
                let [mut a, mut b, mut c, mut d] = four();
                for (end, number) in [(&mut a, 10), (&mut b, 20), (&mut d, 30)] {
                    end.send(WorldRank(2), Tag(1), Number(number)).expect("sent");
                }
                for (from, number) in [(1, 20), (3, 30), (0, 10)] {
                    assert_eq!(c.wait(WorldRank(from), Tag(1)).expect("arrives"), Number(number));
                }
            }

            #[test]
            fn blocks_arrive_in_order_between_wires() {
                let [mut a, mut b] = pair();
                a.send_bytes(WorldRank(1), Tag(0), vec![1]).expect("sent");
                a.send(WorldRank(1), Tag(0), Number(5)).expect("sent");
                a.send_bytes(WorldRank(1), Tag(0), vec![]).expect("sent");
                assert_eq!(b.wait(WorldRank(0), Tag(0)).expect("arrives"), Number(5));
                assert_eq!(b.recv_bytes(WorldRank(0), Tag(0)).expect("arrives"), [1]);
                assert!(b.recv_bytes(WorldRank(0), Tag(0)).expect("arrives").is_empty());
            }

            #[test]
            fn blocks_are_matched_by_their_tags() {
                let [mut a, mut b] = pair();
                assert_eq!(b.poll_bytes(WorldRank(0), Tag(3)).expect("looked"), None);
                for number in 0..4 {
                    a.send_bytes(WorldRank(1), Tag(number % 2), vec![number as u8]).expect("sent");
                }
                assert_eq!(b.recv_bytes(WorldRank(0), Tag(1)).expect("arrives"), [1]);
                assert_eq!(b.recv_bytes(WorldRank(0), Tag(0)).expect("arrives"), [0]);
                assert_eq!(b.recv_bytes(WorldRank(0), Tag(0)).expect("arrives"), [2]);
                assert_eq!(b.poll_bytes(WorldRank(0), Tag(0)).expect("looked"), None);
                let three = loop {
                    match b.poll_bytes(WorldRank(0), Tag(1)).expect("looked") {
                        Some(block) => break block,
                        None => b.listen().expect("something arrives"),
                    }
                };
                assert_eq!(three, [3]);
            }

            #[test]
            fn what_a_quicker_rank_sends_for_a_later_call_waits_for_it() {
                let [mut a, mut b] = pair();
                for number in 1..4 {
                    a.begin(call(number)).expect("begun");
                    a.send(WorldRank(1), Tag(7), Number(number as u32)).expect("sent");
                    a.send_bytes(WorldRank(1), Tag(0), vec![number as u8]).expect("sent");
                }
                for number in 1..4 {
                    b.begin(call(number)).expect("begun");
                    assert_eq!(b.recv_bytes(WorldRank(0), Tag(0)).expect("arrives"), [number as u8]);
                    assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(number as u32));
                }
            }

            #[test]
            fn a_new_call_does_not_hide_that_a_rank_has_stopped() {
                let [mut a, mut b] = pair();
                a.begin(call(1)).expect("begun");
                drop(a);
                b.begin(call(2)).expect("begun");
                let error = b.wait(WorldRank(0), Tag(0)).expect_err("nobody sends");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
            }

            #[test]
            fn whoever_waits_learns_that_a_peer_has_stopped() {
                let [a, mut b] = pair();
                let waiting = thread::spawn(move || b.wait(WorldRank(0), Tag(0)));
                drop(a);
                let error = waiting.join().expect("no panic").expect_err("nobody sends");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
                assert_eq!(error.to_string(), "rank 0 has stopped");
            }

            #[test]
            fn a_stop_is_noticed_by_those_who_wait_for_others() {
                let [a, mut b, mut c, _d] = four();
                drop(a);
                assert!(matches!(
                    b.recv_bytes(WorldRank(2), Tag(0)),
                    Err(Error::PeerGone(WorldRank(0)))
                ));
                assert!(matches!(
                    c.wait(WorldRank(3), Tag(0)),
                    Err(Error::PeerGone(WorldRank(0)))
                ));
            }

            #[test]
            fn all_ranks_gather_the_same_bytes_in_rank_order() {
                for ranks in [2, 4] {
                    let gather = |mut end: End| {
                        let mine = vec![end.rank().0 as u8; end.rank().index()];
                        let mut all = Gathered::default();
                        for _ in 0..3 {
                            all_gather(end.as_mut(), &mine, &mut all).expect("gathered");
                        }
                        (end, all.ranks().map(<[u8]>::to_vec).collect::<Vec<_>>())
                    };
                    let threads: Vec<_> = connect(ranks)
                        .into_iter()
                        .map(|end| thread::spawn(move || gather(end)))
                        .collect();
                    let ends: Vec<_> = threads
                        .into_iter()
                        .map(|thread| thread.join().expect("no panic"))
                        .collect();
                    let expected: Vec<Vec<u8>> = (0..ranks)
                        .map(|rank| vec![rank as u8; rank as usize])
                        .collect();
                    assert!(ends.iter().all(|(_, all)| *all == expected));
                }
            }
        }
    )*};
}

fabrics!(all suite);
