//! What a fabric promises beyond the suite when its wires may be taken in any order. NCCL promises less.

use std::thread;

use pipewright::Error;
use pipewright::fabric::{Call, Tag, Transport};
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
            fn wires_of_one_tag_arrive_in_the_order_in_which_they_were_sent() {
                let [mut a, mut b] = pair();
                for number in 0..4 {
                    a.send(WorldRank(1), Tag(number % 2), Number(number as u32))
                        .expect("sent");
                }
                for number in [1, 0, 2, 3] {
                    let wire = b.wait(WorldRank(0), Tag(number % 2)).expect("arrives");
                    assert_eq!(wire, Number(number as u32));
                }
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
                a.send_bytes(WorldRank(1), Tag(0), vec![1]).expect("sent");
                a.begin(call(2)).expect("begun");
                a.send(WorldRank(1), Tag(7), Number(2)).expect("sent");
                a.send_bytes(WorldRank(1), Tag(0), vec![2]).expect("sent");
                b.begin(call(2)).expect("begun");
                assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(2));
                assert_eq!(b.recv_bytes(WorldRank(0), Tag(0)).expect("arrives"), [2]);
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
            fn a_rank_that_stopped_works_again_in_a_new_attempt() {
                let [mut a, mut b] = pair();
                a.send(WorldRank(1), Tag(7), Number(1)).expect("sent");
                a.stop();
                let error = b.recv_bytes(WorldRank(0), Tag(0)).expect_err("rank 0 has stopped");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
                let error = a.wait(WorldRank(1), Tag(0)).expect_err("it has stopped itself");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
                let again = Call { attempt: 1, number: 0 };
                a.begin(again).expect("begun");
                b.begin(again).expect("begun");
                a.send(WorldRank(1), Tag(7), Number(2)).expect("sent");
                assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), Number(2));
                b.send_bytes(WorldRank(0), Tag(0), vec![3]).expect("sent");
                assert_eq!(a.recv_bytes(WorldRank(1), Tag(0)).expect("arrives"), [3]);
            }

            #[test]
            fn a_stop_in_a_later_attempt_is_not_forgotten() {
                let [mut a, mut b] = pair();
                let again = Call { attempt: 1, number: 0 };
                a.begin(again).expect("begun");
                a.stop();
                let error = b.recv_bytes(WorldRank(0), Tag(0)).expect_err("rank 0 has stopped");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
                b.stop();
                b.begin(again).expect("begun");
                let error = b.recv_bytes(WorldRank(0), Tag(0)).expect_err("rank 0 has stopped");
                assert!(matches!(error, Error::PeerGone(WorldRank(0))), "{error}");
            }
        }
    )*};
}

fabrics!(unordered suite);
