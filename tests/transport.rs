//! What every fabric must do: the same tests, by the same names, for each of them.

use std::thread;

use pipewright::Error;
use pipewright::id::Rank;
use pipewright::transport::{Gathered, Tag, Transport, all_gather, connect};

/// Less than what is on the way at once in some of these tests.
const ROOM: usize = 100;

type Ends = Vec<Box<dyn Transport<u32> + Send>>;

fn channel(ranks: u32) -> Ends {
    connect(ranks, ranks as usize, ROOM)
        .into_iter()
        .map(|end| Box::new(end) as Box<dyn Transport<u32> + Send>)
        .collect()
}

/// The suite for one fabric: `$connect` gives the linked ends of some ranks.
macro_rules! transport_suite {
    ($fabric:ident, $connect:path) => {
        mod $fabric {
            use super::*;

            fn pair() -> [Box<dyn Transport<u32> + Send>; 2] {
                $connect(2).try_into().ok().expect("two ends")
            }

            #[test]
            fn ends_know_their_rank() {
                for (rank, end) in (0..).zip($connect(3)) {
                    assert_eq!((end.rank(), end.ranks()), (Rank(rank), 3));
                }
            }

            #[test]
            fn wires_are_matched_by_tag_in_any_order() {
                let [mut a, mut b] = pair();
                for number in 0..4 {
                    a.send(Rank(1), Tag(number), number as u32).expect("sent");
                }
                for number in [3, 0, 2, 1] {
                    b.post_recv(Rank(0), Tag(number)).expect("posted");
                    assert_eq!(
                        b.wait(Rank(0), Tag(number)).expect("arrives"),
                        number as u32
                    );
                }
            }

            #[test]
            fn a_tag_can_be_used_again_once_it_has_arrived() {
                let [mut a, mut b] = pair();
                for step in 0..3 {
                    a.send(Rank(1), Tag(7), step).expect("sent");
                    assert_eq!(b.wait(Rank(0), Tag(7)).expect("arrives"), step);
                }
            }

            #[test]
            fn equal_tags_from_two_ranks_are_two_wires() {
                let [mut a, mut b, mut c]: [_; 3] = $connect(3).try_into().ok().expect("three ends");
                a.send(Rank(2), Tag(1), 10).expect("sent");
                b.send(Rank(2), Tag(1), 20).expect("sent");
                assert_eq!(c.wait(Rank(1), Tag(1)).expect("arrives"), 20);
                assert_eq!(c.wait(Rank(0), Tag(1)).expect("arrives"), 10);
            }

            #[test]
            fn blocks_arrive_in_order_between_wires() {
                let [mut a, mut b] = pair();
                a.send_bytes(Rank(1), vec![1]).expect("sent");
                a.send(Rank(1), Tag(0), 5).expect("sent");
                a.send_bytes(Rank(1), vec![]).expect("sent");
                assert_eq!(b.wait(Rank(0), Tag(0)).expect("arrives"), 5);
                assert_eq!(b.recv_bytes(Rank(0)).expect("arrives"), [1]);
                assert!(b.recv_bytes(Rank(0)).expect("arrives").is_empty());
            }

            #[test]
            fn sends_do_not_wait_for_their_receiver() {
                let [mut a, mut b] = pair();
                let there = thread::spawn(move || {
                    (0..1000).for_each(|number| b.send(Rank(0), Tag(number), 1).expect("sent"));
                    (0..1000)
                        .map(|number| b.wait(Rank(0), Tag(number)).expect("arrives"))
                        .sum::<u32>()
                });
                (0..1000).for_each(|number| a.send(Rank(1), Tag(number), 2).expect("sent"));
                let here: u32 = (0..1000)
                    .map(|number| a.wait(Rank(1), Tag(number)).expect("arrives"))
                    .sum();
                assert_eq!((here, there.join().expect("no panic")), (1000, 2000));
            }

            #[test]
            fn whoever_waits_learns_that_a_peer_has_stopped() {
                let [a, mut b] = pair();
                let waiting = thread::spawn(move || b.wait(Rank(0), Tag(0)));
                drop(a);
                let error = waiting.join().expect("no panic").expect_err("nobody sends");
                assert!(matches!(error, Error::PeerGone(Rank(0))), "{error}");
                assert_eq!(error.to_string(), "rank 0 has stopped");
            }

            #[test]
            fn a_stop_is_noticed_by_those_who_wait_for_others() {
                let [a, mut b, _c]: [_; 3] = $connect(3).try_into().ok().expect("three ends");
                drop(a);
                assert!(matches!(
                    b.recv_bytes(Rank(2)),
                    Err(Error::PeerGone(Rank(0)))
                ));
                assert!(matches!(
                    b.wait(Rank(2), Tag(0)),
                    Err(Error::PeerGone(Rank(0)))
                ));
            }

            #[test]
            fn all_ranks_gather_the_same_numbers_in_rank_order() {
                for ranks in [1, 2, 5] {
                    // Each end lives until all have gathered: dropping one says that its rank has stopped.
                    let gather = |mut end: Box<dyn Transport<u32> + Send>| {
                        let mine = vec![f64::from(end.rank().0); end.rank().index()];
                        let mut all = Gathered::default();
                        for _ in 0..3 {
                            all_gather(end.as_mut(), &mine, &mut all).expect("gathered");
                        }
                        (end, all.ranks().map(<[f64]>::to_vec).collect::<Vec<_>>())
                    };
                    let threads: Vec<_> = $connect(ranks)
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
    };
}

transport_suite!(channels, channel);
