//! The emulated NCCL, between two processes and between two threads.

#![allow(unsafe_code)]

#[path = "common/driver.rs"]
mod driver;

use std::ffi::c_void;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use cudarc::driver::sys::{self as cuda, CUdeviceptr, CUresult, CUstream};
use cudarc::nccl::sys::{self as nccl, ncclComm_t, ncclDataType_t, ncclResult_t, ncclUniqueId};
use driver::{UNSET, communicator};
use emulator::Cuda;

const ID: &str = "PIPEWRIGHT_TEST_NCCL_ID";

/// One of two ranks: a communicator that does not block, and a stream.
struct Rank {
    comm: ncclComm_t,
    stream: CUstream,
    peer: i32,
}

impl Rank {
    /// Joins as `rank`, on a device of the emulator.
    fn join(rank: i32, device: i32, id: ncclUniqueId) -> Self {
        assert!(driver::enter(device));
        let (mut comm, mut config) = (null_mut(), communicator(false, UNSET));
        // SAFETY: the pointers are to locals.
        let started = unsafe { nccl::ncclCommInitRankConfig(&mut comm, 2, id, rank, &mut config) };
        assert_eq!(started, ncclResult_t::ncclInProgress);
        let stream = driver::stream();
        Self { comm, stream, peer: 1 - rank }
    }

    fn state(&self) -> ncclResult_t {
        let mut state = ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is alive.
        let asked = unsafe { nccl::ncclCommGetAsyncError(self.comm, &mut state) };
        assert_eq!(asked, ncclResult_t::ncclSuccess);
        state
    }

    /// Polls until nothing is in progress.
    fn settle(&self) -> ncclResult_t {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            match self.state() {
                ncclResult_t::ncclInProgress => thread::sleep(Duration::from_millis(1)),
                state => return state,
            }
        }
        panic!("in progress for 30 seconds");
    }

    fn ready(self) -> Self {
        assert_eq!(self.settle(), ncclResult_t::ncclSuccess);
        self
    }

    fn send(&self, at: CUdeviceptr, count: usize) -> ncclResult_t {
        // SAFETY: the tests pass memory that they allocated.
        unsafe {
            nccl::ncclSend(
                at as *const c_void,
                count,
                ncclDataType_t::ncclFloat32,
                self.peer,
                self.comm,
                self.stream.cast(),
            )
        }
    }

    fn recv(&self, at: CUdeviceptr, count: usize) -> ncclResult_t {
        // SAFETY: as above.
        unsafe {
            nccl::ncclRecv(
                at as *mut c_void,
                count,
                ncclDataType_t::ncclFloat32,
                self.peer,
                self.comm,
                self.stream.cast(),
            )
        }
    }

    fn memory(&self, values: &[f32]) -> CUdeviceptr {
        // SAFETY: as much is allocated as is copied.
        unsafe {
            let at = result::malloc_async(self.stream, size_of_val(values)).expect("memory");
            result::memcpy_htod_async(at, values, self.stream).expect("a copy");
            at
        }
    }

    fn read(&self, at: CUdeviceptr, count: usize) -> Vec<f32> {
        let mut values = vec![0.0; count];
        // SAFETY: the tests read only what they allocated.
        unsafe { result::memcpy_dtoh_async(&mut values[..], at, self.stream) }.expect("a copy");
        values
    }

    /// Whether the stream has done all its work.
    fn is_idle(&self) -> bool {
        // SAFETY: the stream is alive.
        match unsafe { cuda::cuStreamQuery(self.stream) } {
            CUresult::CUDA_SUCCESS => true,
            CUresult::CUDA_ERROR_NOT_READY => false,
            other => panic!("{other:?}"),
        }
    }

    fn stays_busy(&self) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            if self.is_idle() {
                return false;
            }
        }
        true
    }

    fn abort(self) {
        // SAFETY: nobody uses the communicator any more.
        assert_eq!(unsafe { nccl::ncclCommAbort(self.comm) }, ncclResult_t::ncclSuccess);
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream) }.expect("what was under way has ended");
    }
}

fn id() -> ncclUniqueId {
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the address is a local's.
    assert_eq!(unsafe { nccl::ncclGetUniqueId(&mut id) }, ncclResult_t::ncclSuccess);
    id
}

fn emulated() -> bool {
    matches!(emulator::start(), Cuda::Emulated(_))
}

/// Starts this program again as rank 1, on the same device but as if on another host.
fn peer(id: ncclUniqueId, task: &str) -> Child {
    let text: String = id.internal.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "rank_1", "--nocapture"])
        .env(ID, text)
        .env("PIPEWRIGHT_TEST_TASK", task)
        .env("NCCL_HOSTID", "another")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// The work of the second process. Does nothing in an ordinary run of the tests.
#[test]
fn rank_1() {
    let Ok(text) = std::env::var(ID) else { return };
    let mut id = ncclUniqueId { internal: [0; 128] };
    for (byte, digits) in id.internal.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).expect("digits"), 16).expect("digits") as _;
    }
    assert!(emulated());
    let rank = Rank::join(1, 0, id).ready();
    if std::env::var("PIPEWRIGHT_TEST_TASK").expect("a task") == "echo" {
        let echo = rank.memory(&[0.0; 3]);
        assert_eq!(rank.recv(echo, 3), ncclResult_t::ncclInProgress);
        assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
        assert_eq!(rank.send(echo, 3), ncclResult_t::ncclInProgress);
        assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
    }
    println!("ready");
    std::io::stdout().flush().expect("a pipe");
    // From here on this process does not call CUDA. Its stream runs because the peer's does.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn processes_exchange_what_their_streams_send() {
    if !emulated() {
        return;
    }
    let id = id();
    let mut peer = peer(id, "echo");
    let rank = Rank::join(0, 0, id).ready();
    let (here, back) = (rank.memory(&[1.0, 2.0, 3.0]), rank.memory(&[0.0; 3]));
    assert_eq!(rank.send(here, 3), ncclResult_t::ncclInProgress);
    assert_eq!(rank.send(here, 3), ncclResult_t::ncclInvalidArgument, "the first is still in progress");
    assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
    assert_eq!(rank.recv(back, 3), ncclResult_t::ncclInProgress);
    assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
    assert_eq!(rank.read(back, 3), [1.0, 2.0, 3.0]);
    drop(peer.stdin.take());
    assert!(peer.wait().expect("the peer").success());
    rank.abort();
}

#[test]
fn what_a_dead_peer_was_to_send_ends_by_abort_only() {
    if !emulated() {
        return;
    }
    let id = id();
    let mut peer = peer(id, "nothing");
    let rank = Rank::join(0, 0, id).ready();
    let here = rank.memory(&[0.0; 3]);
    rank.recv(here, 3);
    assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
    peer.kill().expect("a process");
    peer.wait().expect("a process");
    assert!(rank.stays_busy());
    rank.abort();
}

/// Runs both ranks as threads, each on its own device.
fn threads(task: impl Fn(&Rank) + Send + Sync) {
    let id = id();
    thread::scope(|scope| {
        for rank in 0..2 {
            let task = &task;
            scope.spawn(move || {
                let rank = Rank::join(rank, rank, id).ready();
                task(&rank);
                rank.abort();
            });
        }
    });
}

#[test]
fn sends_that_wait_for_each_other_hang() {
    if !emulated() {
        return;
    }
    threads(|rank| {
        let (here, there) = (rank.memory(&[rank.peer as f32]), rank.memory(&[0.0]));
        rank.send(here, 1);
        assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
        rank.recv(there, 1);
        assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
        assert!(rank.stays_busy());
    });
}

#[test]
fn a_group_goes_both_ways_at_once() {
    if !emulated() {
        return;
    }
    threads(|rank| {
        let (here, there) = (rank.memory(&[rank.peer as f32]), rank.memory(&[0.0]));
        // SAFETY: no arguments.
        unsafe { nccl::ncclGroupStart() };
        assert_eq!(rank.send(here, 1), ncclResult_t::ncclSuccess);
        assert_eq!(rank.recv(there, 1), ncclResult_t::ncclSuccess);
        // SAFETY: no arguments.
        assert_eq!(unsafe { nccl::ncclGroupEnd() }, ncclResult_t::ncclInProgress);
        assert_eq!(rank.settle(), ncclResult_t::ncclSuccess);
        assert_eq!(rank.read(there, 1), [1.0 - rank.peer as f32]);
    });
}

#[test]
fn a_group_with_a_refused_transfer_fails_at_its_end_and_moves_nothing() {
    if !emulated() {
        return;
    }
    threads(|rank| {
        let (here, there) = (rank.memory(&[1.0]), rank.memory(&[0.0]));
        // SAFETY: no arguments.
        unsafe { nccl::ncclGroupStart() };
        assert_eq!(rank.recv(there, 1), ncclResult_t::ncclSuccess);
        // SAFETY: the address is alive. There is no member 7, so it is not read.
        let refused = unsafe {
            let number = ncclDataType_t::ncclFloat32;
            nccl::ncclSend(here as *const _, 1, number, 7, rank.comm, rank.stream.cast())
        };
        assert_eq!(refused, ncclResult_t::ncclInvalidArgument);
        // SAFETY: no arguments.
        assert_eq!(unsafe { nccl::ncclGroupEnd() }, refused);
        assert!(rank.is_idle());
    });
}

#[test]
fn two_ranks_on_one_gpu_are_refused() {
    if !emulated() {
        return;
    }
    let id = id();
    thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let rank = Rank::join(rank, 0, id);
                assert_eq!(rank.settle(), ncclResult_t::ncclInvalidUsage);
                rank.abort();
            });
        }
    });
}
