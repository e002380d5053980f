//! Frames of a process that belongs to the run, but is damaged: they end the run with an error, and never
//! take more memory than their bytes.

use std::collections::VecDeque;

use pipewright::fabric::line::{Aside, Feed, FromProcess, Line, Lines};

use super::*;
use crate::frame::{head, wire};
use crate::gate::play;

/// Kinds of frames, by number.
const WIRE: u32 = 0;
const BLOCK: u32 = 2;
const CALL: u32 = 5;
const FAREWELL: u32 = 7;
const VALID_WIRE: u32 = 8;
const REJOINS: u32 = 9;

/// What process 0's rank gets when it waits for a wire, while process 1 sends these bytes and goes.
fn told(bytes: &[u8]) -> pipewright::Result<Tensor> {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let world = join(0, &address, 30).expect("process 1 comes");
            let (mut ends, peers) = fabric::ends::<Tensor>(world, &mesh(2, 2), 2, ROOM).expect("connected");
            let mut end = ends.pop().expect("one rank");
            let wire = end.wait(WorldRank(1), Tag(0));
            drop(end);
            drop(peers);
            wire
        });
        let mut played = play(&address);
        // It may have closed the connection already.
        let _ = played.data.write_all(bytes);
        drop(played);
        first.join().expect("no panic")
    })
}

#[test]
fn a_whole_frame_of_a_played_process_arrives() {
    let tensor = told(&wire()).expect("it is whole");
    assert_eq!(tensor.f32(), [1.0, 2.0]);
}

#[test]
fn lengths_that_nobody_sends_end_the_connection_and_are_named() {
    for (frame, said) in [
        (head(CALL, 0, 1 << 45, 0), "a text of 35184372088832 bytes, and 1048576 are the most in this run"),
        (
            head(FAREWELL, 0, (1 << 20) + 1, 0),
            "a text of 1048577 bytes, and 1048576 are the most in this run",
        ),
        (head(WIRE, 0, 1 << 13, 8), "a description of 8192 bytes"),
        (head(77, 0, 0, 0), "a frame of no known kind"),
    ] {
        let error = told(&frame).expect_err("refused");
        assert_eq!(error.to_string(), format!("process 1 sends what cannot be read: {said}"));
    }
}

/// A frame of a process that leaves because this one was lost, in this way.
fn rejoins(lost: u64, how: &[u8]) -> Vec<u8> {
    let mut frame = head(REJOINS, 0, how.len() as u64, 0);
    frame[16..24].copy_from_slice(&lost.to_le_bytes());
    frame.extend_from_slice(how);
    frame
}

#[test]
fn losses_that_cannot_be_end_the_connection_and_are_named() {
    for (frame, said) in [
        (rejoins(2, &[0]), "the loss of process 2, which there is not"),
        (rejoins(1 << 40, &[0]), "the loss of process 1099511627776, which there is not"),
        (rejoins(1, &[9]), "a loss of no known kind"),
        (rejoins(1, &[]), "a loss of no known kind"),
        (rejoins(1, &[0, 0]), "a loss of 2 bytes, and 1 are the most in this run"),
    ] {
        let error = told(&frame).expect_err("refused");
        assert_eq!(error.to_string(), format!("process 1 sends what cannot be read: {said}"));
    }
}

/// A line to a process that hears nothing.
struct Deaf;

impl Line for Deaf {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn limit(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn close(&self) {}

    fn say(&self, _: &[u8]) {}
}

/// Brings a process some bytes of process 1, a piece each time that it waits.
struct Brings {
    from: Mutex<Vec<Option<FromProcess>>>,
    pieces: Mutex<VecDeque<Vec<u8>>>,
}

impl Feed for Brings {
    fn feed(&self, _: &dyn Fn() -> bool) -> bool {
        let piece = self.pieces.lock().expect("no panic").pop_front();
        let piece = piece.expect("it has all bytes and waits for more");
        let mut from = self.from.lock().expect("no panic");
        from[1].as_mut().expect("another process").take(&piece);
        true
    }

    fn waits(&self) -> bool {
        true
    }
}

/// Process 0 of two, and its rank's end. A line brings it these bytes, in pieces of `length`.
fn brought(bytes: &[u8], length: usize) -> (End<Tensor>, Peers) {
    let pieces = bytes.chunks(length).map(<[u8]>::to_vec).collect();
    let brings = Arc::new(Brings { from: Mutex::default(), pieces: Mutex::new(pieces) });
    let opens = Arc::clone(&brings);
    let lines = Lines {
        lines: vec![None, Some(Arc::new(Deaf))],
        start: Box::new(move |from, _| {
            *opens.from.lock().expect("no panic") = from;
            Ok(())
        }),
        feed: Some(brings),
        local: vec![0, 1],
        aside: Arc::new(Aside::new(2)),
    };
    let world = World::by_lines(0, lines, Duration::MAX);
    let (mut ends, peers) = fabric::ends::<Tensor>(world, &mesh(2, 2), 2, ROOM).expect("connected");
    (ends.pop().expect("one rank"), peers)
}

#[test]
fn bytes_that_are_no_frame_are_refused_as_soon_as_they_come_on_lines_of_ones_own() {
    let bytes = head(77, 0, 0, 0);
    let (mut end, _peers) = brought(&bytes, bytes.len());
    let error = end.wait(WorldRank(1), Tag(0)).expect_err("refused");
    assert_eq!(error.to_string(), "process 1 sends what cannot be read: a frame of no known kind");
}

#[test]
fn frames_that_come_in_pieces_arrive_whole_on_lines_of_ones_own() {
    let described: Vec<u8> = [&[0][..], &2_u64.to_le_bytes()].concat();
    let numbers = [1.0_f32, 2.0].map(f32::to_le_bytes).concat();
    let valid = [head(VALID_WIRE, 1, described.len() as u64, 8), described, numbers].concat();
    let bytes = [head(BLOCK, 3, 6, 0), vec![9; 6], valid, wire()].concat();
    for length in 1..=bytes.len() {
        let (mut end, _peers) = brought(&bytes, length);
        let from = WorldRank(1);
        for tag in [0, 1] {
            assert_eq!(end.wait(from, Tag(tag)).expect("it is whole").f32(), [1.0, 2.0], "{length}");
        }
        assert_eq!(end.recv_bytes(from, Tag(3)).expect("it is whole"), [9; 6], "{length}");
    }
}

#[test]
fn a_frame_that_claims_many_bytes_takes_no_memory_for_them() {
    // Two to the power of 31 and of 45 bytes: with memory for them, this process would end.
    for bytes in [1_u64 << 31, 1 << 45] {
        for dims in [vec![bytes / 4], vec![bytes / 8, 2]] {
            let mut frame = head(WIRE, 0, 1 + 8 * dims.len() as u64, bytes);
            frame.push(0);
            dims.iter().for_each(|dim| frame.extend(dim.to_le_bytes()));
            let error = told(&frame).expect_err("the rest never comes");
            assert!(matches!(error, Error::PeerGone(WorldRank(1))), "{error}");
        }
        let error = told(&head(BLOCK, 0, bytes, 0)).expect_err("the rest never comes");
        assert!(matches!(error, Error::PeerGone(WorldRank(1))), "{error}");
    }
}

#[test]
fn wires_and_blocks_that_are_larger_than_was_said_end_the_connection() {
    let all = in_processes(2, |world| {
        let process = world.process();
        let (mut ends, peers) = fabric::ends::<Tensor>(world, &mesh(2, 2), 2, ROOM).expect("connected");
        let mut end = ends.pop().expect("one rank");
        peers.allow(4096, 64).expect("all say so");
        peers.allow(16, 0).expect("less than before changes nothing");
        let other = WorldRank(1 - process);
        if process == 1 {
            end.send(other, Tag(0), Tensor::zeros(&[1024])).expect("sent");
            end.send_bytes(other, Tag(0), vec![0; 64]).expect("sent");
            end.send_bytes(other, Tag(1), vec![0; 65]).expect("sent");
            return end.wait(other, Tag(9)).expect_err("closed").to_string();
        }
        end.wait(other, Tag(0)).expect("as large as allowed");
        end.recv_bytes(other, Tag(0)).expect("as large as allowed");
        end.recv_bytes(other, Tag(1)).expect_err("too large").to_string()
    });
    assert_eq!(
        all[0],
        "process 1 sends what cannot be read: a block of 65 bytes, and 64 are the most in this run"
    );
}

#[test]
fn damaged_frames_end_in_an_error_or_a_wire() {
    let whole = [wire(), head(BLOCK, 3, 4, 0), vec![9; 4], wire()].concat();
    let mut wires = 0;
    for number in 0..200 {
        let draw = |index, below: usize| rng::philox([6, 15], [number, index, 0, 0])[0] as usize % below;
        let mut bytes = whole.clone();
        for place in 0..=number % 3 {
            let at = draw(3 * place, bytes.len());
            match draw(3 * place + 1, 4) {
                0 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte |= 0x7f),
                1 => bytes.truncate(at.max(1)),
                _ => bytes[at] = draw(3 * place + 2, 256) as u8,
            }
        }
        wires += usize::from(told(&bytes).is_ok());
    }
    assert!((1..200).contains(&wires), "{wires} of 200 were still wires");
}
