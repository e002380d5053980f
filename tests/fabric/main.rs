//! What every fabric must do: the same tests, by the same names, for each of them.

mod payload;
#[path = "../common/worlds.rs"]
mod worlds;

use std::io::{self, Read, Write};
use std::thread;

use pipewright::fabric::{
    ChannelTransport, Gathered, Peers, Tag, Transport, WireFrame, World, all_gather, connect,
};
use pipewright::id::Rank;
use pipewright::{Error, Result};
use worlds::in_processes;

/// Less than what is on the way at once in some of these tests.
const ROOM: usize = 100;

/// A wire that can go anywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(u32);

impl WireFrame for Number {
    fn describe(&self, description: &mut Vec<u8>) {
        description.push(1);
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.0.to_le_bytes())
    }

    fn read(description: &[u8], from: &mut dyn Read) -> io::Result<Self> {
        assert_eq!(description, [1]);
        let mut bytes = [0; 4];
        from.read_exact(&mut bytes)?;
        Ok(Self(u32::from_le_bytes(bytes)))
    }
}

type Ends = Vec<Box<dyn Transport<Number> + Send>>;

fn channel(ranks: u32) -> Ends {
    connect(ranks, ranks as usize, ROOM)
        .into_iter()
        .map(|end| Box::new(end) as Box<dyn Transport<Number> + Send>)
        .collect()
}

/// The end of a rank whose process has no other.
struct Lone {
    end: ChannelTransport<Number>,
    _peers: Peers,
}

impl Transport<Number> for Lone {
    fn rank(&self) -> Rank {
        self.end.rank()
    }

    fn ranks(&self) -> u32 {
        self.end.ranks()
    }

    fn send(&mut self, peer: Rank, tag: Tag, wire: Number) -> Result<()> {
        self.end.send(peer, tag, wire)
    }

    fn wait(&mut self, peer: Rank, tag: Tag) -> Result<Number> {
        self.end.wait(peer, tag)
    }

    fn send_bytes(&mut self, peer: Rank, bytes: Vec<u8>) -> Result<()> {
        self.end.send_bytes(peer, bytes)
    }

    fn recv_bytes(&mut self, peer: Rank) -> Result<Vec<u8>> {
        self.end.recv_bytes(peer)
    }
}

fn socket(ranks: u32) -> Ends {
    let link = |world: World| -> Box<dyn Transport<Number> + Send> {
        let (mut ends, peers) = world.link(ranks, ranks as usize, ROOM).expect("linked");
        let end = ends.pop().expect("one rank a process");
        Box::new(Lone { end, _peers: peers })
    };
    in_processes(ranks, link)
}

/// The suite for one fabric: `$connect` gives the linked ends of some ranks.
macro_rules! transport_suite {
    ($fabric:ident, $connect:path) => {
        mod $fabric {
            use super::*;

            fn pair() -> [Box<dyn Transport<Number> + Send>; 2] {
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
                    a.send(Rank(1), Tag(number), Number(number as u32))
                        .expect("sent");
                }
                for number in [3, 0, 2, 1] {
                    b.post_recv(Rank(0), Tag(number)).expect("posted");
                    assert_eq!(
                        b.wait(Rank(0), Tag(number)).expect("arrives"),
                        Number(number as u32)
                    );
                }
            }

            #[test]
            fn a_tag_can_be_used_again_once_it_has_arrived() {
                let [mut a, mut b] = pair();
                for step in 0..3 {
                    a.send(Rank(1), Tag(7), Number(step)).expect("sent");
                    assert_eq!(b.wait(Rank(0), Tag(7)).expect("arrives"), Number(step));
                }
            }

            #[test]
            fn equal_tags_from_two_ranks_are_two_wires() {
                let [mut a, mut b, mut c]: [_; 3] = $connect(3).try_into().ok().expect("three ends");
                a.send(Rank(2), Tag(1), Number(10)).expect("sent");
                b.send(Rank(2), Tag(1), Number(20)).expect("sent");
                assert_eq!(c.wait(Rank(1), Tag(1)).expect("arrives"), Number(20));
                assert_eq!(c.wait(Rank(0), Tag(1)).expect("arrives"), Number(10));
            }

            #[test]
            fn blocks_arrive_in_order_between_wires() {
                let [mut a, mut b] = pair();
                a.send_bytes(Rank(1), vec![1]).expect("sent");
                a.send(Rank(1), Tag(0), Number(5)).expect("sent");
                a.send_bytes(Rank(1), vec![]).expect("sent");
                assert_eq!(b.wait(Rank(0), Tag(0)).expect("arrives"), Number(5));
                assert_eq!(b.recv_bytes(Rank(0)).expect("arrives"), [1]);
                assert!(b.recv_bytes(Rank(0)).expect("arrives").is_empty());
            }

            #[test]
            fn sends_do_not_wait_for_their_receiver() {
                let [mut a, mut b] = pair();
                let there = thread::spawn(move || {
                    (0..1000).for_each(|number| b.send(Rank(0), Tag(number), Number(1)).expect("sent"));
                    (0..1000)
                        .map(|number| b.wait(Rank(0), Tag(number)).expect("arrives").0)
                        .sum::<u32>()
                });
                (0..1000).for_each(|number| a.send(Rank(1), Tag(number), Number(2)).expect("sent"));
                let here: u32 = (0..1000)
                    .map(|number| a.wait(Rank(1), Tag(number)).expect("arrives").0)
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
                    let gather = |mut end: Box<dyn Transport<Number> + Send>| {
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
transport_suite!(sockets, socket);

#[test]
fn ranks_of_one_process_and_of_others_are_reached_alike() {
    let all = in_processes(2, |world| {
        let (ends, peers) = world.link::<Number>(4, 4, ROOM).expect("linked");
        let exchange = |mut end: ChannelTransport<Number>| {
            let own = end.rank().0;
            for to in 0..4 {
                let wire = Number(10 * own + to);
                end.send(Rank(to), Tag(9), wire).expect("sent");
            }
            let got = [0, 1, 2, 3].map(|from| end.wait(Rank(from), Tag(9)).expect("arrives").0);
            (end, got)
        };
        let done = thread::scope(|scope| {
            let ranks: Vec<_> = ends
                .into_iter()
                .map(|end| scope.spawn(|| exchange(end)))
                .collect();
            let ranks = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
            ranks.collect::<Vec<_>>()
        });
        // Who has all leaves when the others have.
        peers.share("the test", Ok(Vec::new())).expect("all go on");
        done.into_iter().map(|(_, got)| got).collect::<Vec<_>>()
    });
    for (rank, got) in (0..).zip(all.concat()) {
        assert_eq!(got, [rank, 10 + rank, 20 + rank, 30 + rank]);
    }
}
