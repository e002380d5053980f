//! The suite for one fabric.

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
            fn all_ranks_reach_all_and_themselves() {
                let exchange = |mut end: End| {
                    let own = end.rank().0;
                    for to in 0..4 {
                        let wire = Number(10 * own + to);
                        end.send(WorldRank(to), Tag(9), wire).expect("sent");
                    }
                    let got = [0, 1, 2, 3].map(|from| end.wait(WorldRank(from), Tag(9)).expect("arrives").0);
                    assert_eq!(got, [own, 10 + own, 20 + own, 30 + own]);
                    end
                };
                // Each end lives until all have what they wait for: dropping one says that its rank has
                // stopped.
                let threads = four().map(|end| thread::spawn(move || exchange(end)));
                let _ends = threads.map(|thread| thread.join().expect("no panic"));
            }

            #[test]
            fn wires_are_matched_by_tag_in_any_order() {
                let [mut a, mut b] = pair();
                for number in 0..4 {
                    a.send(WorldRank(1), Tag(number), Number(number as u32))
                        .expect("sent");
                }
                for number in [3, 0, 2, 1] {
                    b.post_recv(WorldRank(0), Tag(number)).expect("posted");
                    assert_eq!(
                        b.wait(WorldRank(0), Tag(number)).expect("arrives"),
                        Number(number as u32)
                    );
                }
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
                a.send_bytes(WorldRank(1), vec![1]).expect("sent");
                a.send(WorldRank(1), Tag(0), Number(5)).expect("sent");
                a.send_bytes(WorldRank(1), vec![]).expect("sent");
                assert_eq!(b.wait(WorldRank(0), Tag(0)).expect("arrives"), Number(5));
                assert_eq!(b.recv_bytes(WorldRank(0)).expect("arrives"), [1]);
                assert!(b.recv_bytes(WorldRank(0)).expect("arrives").is_empty());
            }

            #[test]
            fn sends_do_not_wait_for_their_receiver() {
                let [mut a, mut b] = pair();
                let there = thread::spawn(move || {
                    (0..1000).for_each(|number| b.send(WorldRank(0), Tag(number), Number(1)).expect("sent"));
                    (0..1000)
                        .map(|number| b.wait(WorldRank(0), Tag(number)).expect("arrives").0)
                        .sum::<u32>()
                });
                (0..1000).for_each(|number| a.send(WorldRank(1), Tag(number), Number(2)).expect("sent"));
                let here: u32 = (0..1000)
                    .map(|number| a.wait(WorldRank(1), Tag(number)).expect("arrives").0)
                    .sum();
                assert_eq!((here, there.join().expect("no panic")), (1000, 2000));
            }

            #[test]
            fn what_an_earlier_call_left_is_dropped_and_never_taken() {
                let [mut a, mut b] = pair();
                a.begin(call(1)).expect("begun");
                a.send(WorldRank(1), Tag(7), Number(1)).expect("sent");
                a.send_bytes(WorldRank(1), vec![1]).expect("sent");
                a.begin(call(2)).expect("begun");
                a.send(WorldRank(1), Tag(7), Number(2)).expect("sent");
                a.send_bytes(WorldRank(1), vec![2]).expect("sent");
                b.begin(call(2)).expect("begun");
                assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(2));
                assert_eq!(b.recv_bytes(WorldRank(0)).expect("arrives"), [2]);
            }

            #[test]
            fn what_has_come_and_was_not_taken_is_dropped_when_the_next_call_begins() {
                let [mut a, mut b] = pair();
                a.send(WorldRank(1), Tag(7), Number(1)).expect("sent");
                a.send(WorldRank(1), Tag(8), Number(1)).expect("sent");
                // Now the first one has come too.
                b.wait(WorldRank(0), Tag(8)).expect("arrives");
                a.begin(call(1)).expect("begun");
                b.begin(call(1)).expect("begun");
                a.send(WorldRank(1), Tag(7), Number(2)).expect("sent");
                assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(2));
            }

            #[test]
            fn what_a_quicker_rank_sends_for_a_later_call_waits_for_it() {
                let [mut a, mut b] = pair();
                for number in 1..4 {
                    a.begin(call(number)).expect("begun");
                    a.send(WorldRank(1), Tag(7), Number(number as u32)).expect("sent");
                    a.send_bytes(WorldRank(1), vec![number as u8]).expect("sent");
                }
                for number in 1..4 {
                    b.begin(call(number)).expect("begun");
                    assert_eq!(b.recv_bytes(WorldRank(0)).expect("arrives"), [number as u8]);
                    assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(number as u32));
                }
            }

            #[test]
            fn a_rank_that_stopped_works_again_in_a_new_attempt() {
                let [mut a, mut b] = pair();
                a.send(WorldRank(1), Tag(7), Number(1)).expect("sent");
                a.stop();
                let error = b.recv_bytes(WorldRank(0)).expect_err("rank 0 has stopped");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
                let error = a.wait(WorldRank(1), Tag(0)).expect_err("it has stopped itself");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
                let again = Call { attempt: 1, number: 0 };
                a.begin(again).expect("begun");
                b.begin(again).expect("begun");
                a.send(WorldRank(1), Tag(7), Number(2)).expect("sent");
                assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(2));
                b.send_bytes(WorldRank(0), vec![3]).expect("sent");
                assert_eq!(a.recv_bytes(WorldRank(1)).expect("arrives"), [3]);
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
                    b.recv_bytes(WorldRank(2)),
                    Err(Error::PeerGone(WorldRank(0)))
                ));
                assert!(matches!(
                    c.wait(WorldRank(3), Tag(0)),
                    Err(Error::PeerGone(WorldRank(0)))
                ));
            }

            #[test]
            fn all_ranks_gather_the_same_numbers_in_rank_order() {
                for ranks in [2, 4] {
                    let gather = |mut end: End| {
                        let mine = vec![f64::from(end.rank().0); end.rank().index()];
                        let mut all = Gathered::default();
                        for _ in 0..3 {
                            all_gather(end.as_mut(), &mine, &mut all).expect("gathered");
                        }
                        (end, all.ranks().map(<[f64]>::to_vec).collect::<Vec<_>>())
                    };
                    let threads: Vec<_> = connect(ranks)
                        .into_iter()
                        .map(|end| thread::spawn(move || gather(end)))
                        .collect();
                    let ends: Vec<_> = threads
                        .into_iter()
                        .map(|thread| thread.join().expect("no panic"))
                        .collect();
                    let expected: Vec<Vec<f64>> = (0..ranks)
                        .map(|rank| vec![f64::from(rank); rank as usize])
                        .collect();
                    assert!(ends.iter().all(|(_, all)| *all == expected));
                }
            }
        }
    )*};
}

suite!(channels sockets channels_and_sockets);

#[test]
fn a_rank_alone_gathers_its_own_numbers() {
    let mut end = crate::channels(1).pop().expect("one end");
    let mut all = Gathered::default();
    all_gather(end.as_mut(), &[1.0, 2.0], &mut all).expect("gathered");
    assert_eq!(all.numbers(), [1.0, 2.0]);
}
