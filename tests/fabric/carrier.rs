//! How a rank's end uses a carrier of numbers next to its sockets.

use pipewright::error::{FabricError, Problem};
use pipewright::fabric::{Alarm, Carrier, KeepGoing};

use super::*;

/// A carrier that takes odd numbers only.
struct Beside {
    to: crossbeam_channel::Sender<u32>,
    from: crossbeam_channel::Receiver<u32>,
}

impl Carrier<Number> for Beside {
    fn send(&mut self, _: WorldRank, wire: &Number) -> Result<bool> {
        let carried = wire.0 % 2 == 1;
        if carried {
            self.to.send(wire.0).expect("somebody listens");
        }
        Ok(carried)
    }

    fn receive(&mut self, peer: WorldRank, description: &[u8]) -> Result<Number> {
        assert_eq!((peer, description), (WorldRank(0), &[1][..]));
        Ok(Number(self.from.recv().expect("queued before the header was sent")))
    }
}

/// Two ends with such carriers.
fn beside() -> [(End<Number>, Peers); 2] {
    let (to, from) = crossbeam_channel::unbounded();
    let ends = in_processes(2, |world| {
        let (mut ends, peers) = fabric::ends(world, &mesh(2, 2), 2, ROOM).expect("connected");
        let beside = Beside { to: to.clone(), from: from.clone() };
        let end: End<Number> = ends.pop().expect("one rank");
        (end.carried_by(Box::new(beside)), peers)
    });
    ends.try_into().expect("two ends")
}

#[test]
fn a_carrier_receives_in_the_order_of_the_schedule_whatever_is_waited_for_first() {
    let [(mut a, _a), (mut b, _b)] = beside();
    for number in 0..6 {
        a.send(WorldRank(1), Tag(number), Number(number as u32)).expect("sent");
        b.post_recv(WorldRank(0), Tag(number)).expect("posted");
    }
    for number in [3, 0, 5, 1, 2, 4] {
        assert_eq!(b.wait(WorldRank(0), Tag(number)).expect("arrives"), Number(number as u32));
    }
}

#[test]
fn a_later_attempt_is_refused_where_a_carrier_may_hold_numbers_of_an_earlier_one() {
    let [(mut a, _a), (mut b, _b)] = beside();
    // These numbers wait in the carrier. The next receive would take them, whatever it is for.
    a.send(WorldRank(1), Tag(7), Number(1)).expect("sent");
    a.stop();
    let again = Call { attempt: 1, number: 0 };
    let error = b.begin(again).expect_err("it has a carrier");
    assert!(matches!(error, Error::Fabric(_)));
    assert_eq!(
        error.to_string(),
        "rank 1 cannot begin attempt 1: its carrier may still hold numbers of an earlier attempt; connect \
         the ranks anew"
    );
    let after = b.wait(WorldRank(0), Tag(7)).expect_err("it stays refused");
    assert_eq!(after.to_string(), error.to_string());
}

#[test]
fn a_rank_that_refuses_an_attempt_ends_it_for_the_others() {
    let ends = in_processes(2, |world| {
        let (mut ends, peers) = fabric::ends::<Number>(world, &mesh(2, 2), 2, ROOM).expect("connected");
        (ends.pop().expect("one rank"), peers)
    });
    let [(mut a, _a), (b, _b)] = ends.try_into().expect("two ends");
    let mut b = b.carried_by(Box::new(Reaching(Vec::new())));
    let again = Call { attempt: 1, number: 0 };
    a.begin(again).expect("it has no carrier");
    b.begin(again).expect_err("it has a carrier");
    drop(b);
    assert!(matches!(a.wait(WorldRank(1), Tag(0)), Err(Error::PeerGone(WorldRank(1)))));
}

/// A carrier that reaches these partners.
struct Reaching(Vec<WorldRank>);

impl Carrier<Number> for Reaching {
    fn start(&mut self, partners: &[WorldRank], _: &Alarm, _: KeepGoing<'_>) -> Result<()> {
        self.0 = partners.to_vec();
        Ok(())
    }

    fn reaches(&self, partner: WorldRank) -> bool {
        self.0.contains(&partner)
    }

    fn send(&mut self, _: WorldRank, _: &Number) -> Result<bool> {
        Ok(false)
    }

    fn receive(&mut self, _: WorldRank, _: &[u8]) -> Result<Number> {
        unreachable!("all goes over the sockets")
    }
}

#[test]
fn ranks_of_one_process_have_a_direct_way_and_others_where_a_carrier_has_one() {
    let all = in_processes(2, |world| {
        let (ends, peers) = fabric::ends::<Number>(world, &mesh(4, 2), 4, ROOM).expect("connected");
        let direct = |end: &End<Number>| [0, 1, 2, 3].map(|to| end.is_direct(WorldRank(to)));
        let before: Vec<_> = ends.iter().map(direct).collect();
        let started = ends.into_iter().map(|end| {
            let mut end = end.carried_by(Box::new(Reaching(Vec::new())));
            end.start(&[WorldRank(0), WorldRank(3)]).expect("started");
            end
        });
        let started: Vec<_> = started.collect();
        let after: Vec<_> = started.iter().map(direct).collect();
        (before, after, started, peers)
    });
    let found: Vec<_> = all.iter().map(|(before, after, ..)| (before.as_slice(), after.as_slice())).collect();
    let (first, second) = ([true, true, false, false], [false, false, true, true]);
    assert_eq!(
        found,
        [
            (&[first; 2][..], &[[true, true, false, true]; 2][..]),
            (&[second; 2][..], &[[true, false, true, true]; 2][..]),
        ]
    );
}

/// Records the calls that it gets.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn add(&self, what: &'static str) {
        self.0.lock().expect("no panic").push(what);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl Carrier<Number> for Log {
    fn start(&mut self, _: &[WorldRank], alarm: &Alarm, _: KeepGoing<'_>) -> Result<()> {
        let log = self.clone();
        alarm.then(move || log.add("alarm"));
        Ok(())
    }

    fn send(&mut self, _: WorldRank, _: &Number) -> Result<bool> {
        self.add("send");
        Ok(true)
    }

    fn receive(&mut self, _: WorldRank, _: &[u8]) -> Result<Number> {
        self.add("recv");
        Ok(Number(0))
    }

    fn check(&mut self) -> Result<()> {
        self.add("check");
        Err(FabricError::Failed(Problem::new("a wire is lost")).into())
    }
}

/// Two ends with such carriers, started.
fn logged() -> [(End<Number>, Log, Peers); 2] {
    let ends = in_processes(2, |world| {
        let (mut ends, peers) = fabric::ends(world, &mesh(2, 2), 2, ROOM).expect("connected");
        let log = Log::default();
        let end: End<Number> = ends.pop().expect("one rank");
        let mut end = end.carried_by(Box::new(log.clone()));
        end.start(&[]).expect("started");
        (end, log, peers)
    });
    ends.try_into().ok().expect("two ends")
}

#[test]
fn a_carrier_sends_after_the_receives_that_were_announced_before() {
    let [(mut a, _, _a), (mut b, log, _b)] = logged();
    for tag in 0..2 {
        a.send(WorldRank(1), Tag(tag), Number(0)).expect("sent");
        b.post_recv(WorldRank(0), Tag(tag)).expect("posted");
    }
    b.send(WorldRank(0), Tag(2), Number(0)).expect("sent");
    assert_eq!(log.take(), ["recv", "recv", "send"]);
    for tag in 0..2 {
        b.wait(WorldRank(0), Tag(tag)).expect("there");
    }
    assert!(log.take().is_empty());
}

#[test]
fn a_rank_that_stops_sets_off_the_others_alarm_and_is_the_cause_of_what_a_carrier_reports() {
    let [(a, _, _a), (mut b, log, _b)] = logged();
    let report = b.check().expect_err("a report").to_string();
    assert_eq!(report, "a wire is lost");
    assert_eq!(log.take(), ["check"]);
    let carriers = log.clone();
    let stopping = thread::spawn(move || {
        // The carrier must notice first.
        while carriers.take() != ["check"] {
            thread::yield_now();
        }
        drop(a);
    });
    assert!(matches!(b.check(), Err(Error::PeerGone(WorldRank(0)))));
    stopping.join().expect("no panic");
    while log.take() != ["alarm"] {
        thread::yield_now();
    }
}
