//! The end of a rank in another process, which does what the test says over a socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pipewright::fabric::{Call, End, Tag, Transport};
use pipewright::id::WorldRank;
use pipewright::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::given::{Ends, Number};
use crate::joined::{TEST, end, mpirun, world};

/// What the test tells an end to do.
#[derive(Serialize, Deserialize)]
enum Order {
    Begin(u32, u64),
    Stop,
    Check,
    Send(u32, u64, u32),
    PostRecv(u32, u64),
    Wait(u32, u64),
    SendBytes(u32, u64, Vec<u8>),
    RecvBytes(u32, u64),
    PollBytes(u32, u64),
    Listen,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
enum Outcome {
    Done,
    Number(u32),
    Bytes(Vec<u8>),
    Nothing,
    Gone(u32),
    Failed(String),
}

fn tell(mut to: &TcpStream, what: &impl Serialize) {
    let line = serde_json::to_string(what).expect("it is text") + "\n";
    to.write_all(line.as_bytes()).expect("the other side listens");
}

/// What the other side says next. `None` at its end.
fn hear<T: for<'a> Deserialize<'a>>(from: &mut BufReader<TcpStream>) -> Option<T> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    (!line.is_empty()).then(|| serde_json::from_str(&line).expect("it is known"))
}

/// The end of a rank in another process.
struct Far {
    rank: WorldRank,
    ranks: u32,
    orders: BufReader<TcpStream>,
    /// All processes, which end after the last end was dropped.
    _run: Arc<Run>,
}

/// `mpirun`. It has ended when this is dropped.
struct Run(Mutex<Child>);

impl Run {
    /// The connection of a process. Panics if `mpirun` ends before one comes.
    fn accept(&self, listener: &TcpListener) -> TcpStream {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).expect("a socket can");
                    return stream;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            let ended = self.0.lock().expect("nobody panicked with it").try_wait().expect("it can be asked");
            assert!(ended.is_none(), "mpirun has ended before all processes came: {ended:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let child = self.0.get_mut().expect("nobody panicked with it");
        let ended = child.wait().expect("it ends");
        assert!(ended.success() || thread::panicking(), "{ended}");
    }
}

/// A process for each rank, connected by MPI.
pub(crate) fn mpi(ranks: u32) -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket can");
    let address = listener.local_addr().expect("it has one").to_string();
    let mut command = mpirun(ranks, "far::an_end_of_another_process");
    command.env(TEST, address).stdout(Stdio::null());
    let run = command.spawn().expect("mpirun is there: these tests need it");
    let run = Arc::new(Run(Mutex::new(run)));
    let mut ends: Vec<Far> = (0..ranks)
        .map(|_| {
            let mut orders = BufReader::new(run.accept(&listener));
            Far {
                rank: WorldRank(hear(&mut orders).expect("it says who it is")),
                ranks,
                orders,
                _run: Arc::clone(&run),
            }
        })
        .collect();
    ends.sort_by_key(|end| end.rank);
    ends.into_iter().map(|end| Box::new(end) as _).collect()
}

#[test]
#[ignore = "the others start it"]
fn an_end_of_another_process() {
    let Some(world) = world() else { return };
    let (mut end, _peers) = end::<Number>(world);
    let test = TcpStream::connect(std::env::var(TEST).expect("it is set")).expect("the test listens");
    let mut orders = BufReader::new(test);
    tell(orders.get_ref(), &end.rank().0);
    while let Some(order) = hear(&mut orders) {
        let outcome = match obey(&mut end, order) {
            Ok(outcome) => outcome,
            Err(Error::PeerGone(rank)) => Outcome::Gone(rank.0),
            Err(error) => Outcome::Failed(error.to_string()),
        };
        tell(orders.get_ref(), &outcome);
    }
}

fn obey(end: &mut End<Number>, order: Order) -> Result<Outcome> {
    let (rank, tag) = (WorldRank, Tag);
    match order {
        Order::Begin(attempt, number) => end.begin(Call { attempt, number })?,
        Order::Stop => end.stop(),
        Order::Check => end.check()?,
        Order::Send(peer, wire, number) => end.send(rank(peer), tag(wire), Number(number))?,
        Order::PostRecv(peer, wire) => end.post_recv(rank(peer), tag(wire))?,
        Order::SendBytes(peer, block, bytes) => end.send_bytes(rank(peer), tag(block), bytes)?,
        Order::Listen => end.listen()?,
        Order::Wait(peer, wire) => return Ok(Outcome::Number(end.wait(rank(peer), tag(wire))?.0)),
        Order::RecvBytes(peer, block) => {
            return Ok(Outcome::Bytes(end.recv_bytes(rank(peer), tag(block))?));
        }
        Order::PollBytes(peer, block) => {
            let come = end.poll_bytes(rank(peer), tag(block))?;
            return Ok(come.map_or(Outcome::Nothing, Outcome::Bytes));
        }
    }
    Ok(Outcome::Done)
}

impl Far {
    fn ask(&mut self, order: &Order) -> Result<Outcome> {
        tell(self.orders.get_ref(), order);
        match hear(&mut self.orders).expect("it answers") {
            Outcome::Gone(rank) => Err(Error::PeerGone(WorldRank(rank))),
            Outcome::Failed(why) => panic!("{why}"),
            outcome => Ok(outcome),
        }
    }

    fn done(&mut self, order: &Order) -> Result<()> {
        self.ask(order).map(|outcome| assert!(matches!(outcome, Outcome::Done)))
    }
}

impl Transport<Number> for Far {
    fn rank(&self) -> WorldRank {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn begin(&mut self, call: Call) -> Result<()> {
        self.done(&Order::Begin(call.attempt, call.number))
    }

    fn stop(&mut self) {
        self.done(&Order::Stop).expect("it cannot fail");
    }

    fn check(&mut self) -> Result<()> {
        self.done(&Order::Check)
    }

    fn send(&mut self, peer: WorldRank, tag: Tag, wire: Number) -> Result<()> {
        self.done(&Order::Send(peer.0, tag.0, wire.0))
    }

    fn post_recv(&mut self, peer: WorldRank, tag: Tag) -> Result<()> {
        self.done(&Order::PostRecv(peer.0, tag.0))
    }

    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<Number> {
        match self.ask(&Order::Wait(peer.0, tag.0))? {
            Outcome::Number(number) => Ok(Number(number)),
            other => panic!("{other:?}"),
        }
    }

    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()> {
        self.done(&Order::SendBytes(peer.0, tag.0, bytes))
    }

    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        match self.ask(&Order::RecvBytes(peer.0, tag.0))? {
            Outcome::Bytes(bytes) => Ok(bytes),
            other => panic!("{other:?}"),
        }
    }

    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>> {
        match self.ask(&Order::PollBytes(peer.0, tag.0))? {
            Outcome::Bytes(bytes) => Ok(Some(bytes)),
            Outcome::Nothing => Ok(None),
            other => panic!("{other:?}"),
        }
    }

    fn listen(&mut self) -> Result<()> {
        self.done(&Order::Listen)
    }
}
