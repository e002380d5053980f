//! Wires that cannot be written or read. Both sides get an error with the reason, the ranks and the tag.

use Faulty::*;

use super::*;

/// A wire with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Faulty {
    Fine,
    FailsToWrite,
    PanicsWhenWritten,
    WritesLess,
    WritesMore,
    PanicsWhenDescribed,
    HasALongDescription,
    FailsToRead,
    PanicsWhenRead,
    ReadsLess,
}

impl WireFrame for Faulty {
    fn describe(&self, description: &mut Vec<u8>) {
        match self {
            PanicsWhenDescribed => panic!("no words for it"),
            HasALongDescription => description.resize(4097, 0),
            _ => description.push(*self as u8),
        }
    }

    fn bytes(&self) -> u64 {
        100
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&[0; 50])?;
        match self {
            FailsToWrite => Err(io::Error::other("the ink is dry")),
            PanicsWhenWritten => panic!("no ink at all"),
            WritesLess => Ok(()),
            WritesMore => to.write_all(&[0; 51]),
            _ => to.write_all(&[0; 50]),
        }
    }

    fn read(description: &[u8], bytes: u64, from: &mut dyn Read) -> io::Result<Self> {
        let mut numbers = vec![0; bytes as usize - 1];
        from.read_exact(&mut numbers)?;
        match description {
            [kind] if *kind == FailsToRead as u8 => Err(io::Error::other("nobody can read this")),
            [kind] if *kind == PanicsWhenRead as u8 => panic!("no glasses"),
            [kind] if *kind == ReadsLess as u8 => Ok(ReadsLess),
            _ => from.read_exact(&mut [0]).map(|()| Fine),
        }
    }
}

/// A wire of this number of bytes. No more than a few of them are ever in memory.
struct Long(u64);

const PIECE: usize = 1 << 20;

impl WireFrame for Long {
    fn describe(&self, description: &mut Vec<u8>) {
        description.push(0);
    }

    fn bytes(&self) -> u64 {
        self.0
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let (piece, mut left) = (vec![7; PIECE], self.0);
        while left > 0 {
            let next = left.min(PIECE as u64);
            to.write_all(&piece[..next as usize])?;
            left -= next;
        }
        Ok(())
    }

    fn read(_: &[u8], bytes: u64, from: &mut dyn Read) -> io::Result<Self> {
        let (mut piece, mut read) = (vec![0; PIECE], 0);
        while read < bytes {
            let next = (bytes - read).min(PIECE as u64) as usize;
            from.read_exact(&mut piece[..next])?;
            assert_eq!((piece[0], piece[next - 1]), (7, 7));
            read += next as u64;
        }
        Ok(Self(read))
    }
}

/// The ends of two processes with a rank each.
fn pair<W: WireFrame>() -> [(End<W>, Peers); 2] {
    let ends = in_processes(2, |world| {
        let (mut ends, peers) = fabric::ends(world, &mesh(2, 2), 2, ROOM).expect("connected");
        (ends.pop().expect("one rank"), peers)
    });
    ends.try_into().unwrap_or_else(|_| panic!("two processes"))
}

#[test]
fn a_wire_that_cannot_be_written_fails_on_both_sides_for_its_own_reason() {
    let reasons = [
        (FailsToWrite, "the ink is dry"),
        (PanicsWhenWritten, "it panicked: no ink at all"),
        (WritesLess, "it wrote 50 bytes, but had announced 100"),
        (WritesMore, "it writes more bytes than it had announced"),
        (PanicsWhenDescribed, "it panicked: no words for it"),
        (HasALongDescription, "its description has 4097 bytes, and 4096 is the most"),
    ];
    for (wire, reason) in reasons {
        let [(mut a, _a), (mut b, _b)] = pair();
        let expected = format!("rank 0 cannot send rank 1 the wire with tag 0x7: {reason}");
        let sent = a.send(WorldRank(1), Tag(7), wire).expect_err("it fails");
        assert_eq!(sent.to_string(), expected);
        let received = b.wait(WorldRank(0), Tag(7)).expect_err("it fails");
        assert_eq!(received.to_string(), expected);
    }
}

#[test]
fn a_wire_that_cannot_be_read_fails_on_both_sides_for_its_own_reason() {
    for (wire, reason) in [(FailsToRead, "nobody can read this"), (PanicsWhenRead, "it panicked: no glasses")]
    {
        let [(mut a, _a), (mut b, _b)] = pair();
        a.send(WorldRank(1), Tag(7), wire).expect("sent");
        let expected = format!("rank 1 cannot read the wire with tag 0x7 from rank 0: {reason}");
        let received = b.wait(WorldRank(0), Tag(7)).expect_err("it fails");
        assert_eq!(received.to_string(), expected);
        let told = a.recv_bytes(WorldRank(1), Tag(0)).expect_err("the other rank has failed");
        assert_eq!(told.to_string(), expected);
    }
}

#[test]
fn a_wire_that_reads_less_than_was_written_does_not_harm_the_next_one() {
    let [(mut a, _a), (mut b, _b)] = pair();
    a.send(WorldRank(1), Tag(7), ReadsLess).expect("sent");
    a.send(WorldRank(1), Tag(8), Fine).expect("sent");
    assert_eq!(b.wait(WorldRank(0), Tag(8)).expect("arrives"), Fine);
    assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), ReadsLess);
}

/// A wire whose header claims a tensor of `.0` numbers in `.1` bytes.
struct Boast(u64, u64);

impl WireFrame for Boast {
    fn describe(&self, description: &mut Vec<u8>) {
        description.push(0);
        description.extend(self.0.to_le_bytes());
    }

    fn bytes(&self) -> u64 {
        self.1
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&vec![0; self.1 as usize])
    }

    /// A process that takes the wire for a tensor reads this.
    fn read(description: &[u8], bytes: u64, from: &mut dyn Read) -> io::Result<Self> {
        let tensor = Tensor::read(description, bytes, from)?;
        Ok(Self(tensor.f32().len() as u64, bytes))
    }
}

#[test]
fn no_memory_is_made_for_dimensions_that_the_frame_has_no_numbers_for() {
    let [(mut a, _a), (mut b, _b)] = pair();
    a.send(WorldRank(1), Tag(7), Boast(1 << 43, 40)).expect("sent");
    let error = b.wait(WorldRank(0), Tag(7)).map(|_| ()).expect_err("a boast");
    assert_eq!(
        error.to_string(),
        "rank 1 cannot read the wire with tag 0x7 from rank 0: f32[8796093022208] has 35184372088832 bytes, \
         and 40 came"
    );
}

#[test]
fn wires_of_many_bytes_arrive_whole() {
    let [(mut a, _a), (mut b, _b)] = pair();
    for count in [3 << 20, 1, 1 << 20] {
        let mut sent = Tensor::scratch(&[count]);
        (0..).zip(sent.f32_mut()).for_each(|(index, number)| *number = index as f32);
        a.send(WorldRank(1), Tag(7), sent.clone()).expect("sent");
        assert_eq!(b.wait(WorldRank(0), Tag(7)).expect("arrives"), sent);
    }
}

#[test]
fn a_wire_of_more_than_two_gib_is_carried() {
    const LONGEST: u64 = (1 << 31) + 5;
    let [(mut a, _a), (mut b, _b)] = pair();
    // A wire that is much longer than those before it waits in memory until it is there. So they grow.
    let lengths: Vec<u64> = (20..31).map(|power| 1 << power).chain([LONGEST]).collect();
    let sent = lengths.clone();
    let sending = std::thread::spawn(move || {
        for length in sent {
            a.send(WorldRank(1), Tag(length), Long(length)).expect("sent");
        }
        a
    });
    for length in lengths {
        assert_eq!(b.wait(WorldRank(0), Tag(length)).expect("arrives").0, length);
    }
    drop(sending.join().expect("no panic"));
}
