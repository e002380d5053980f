//! NCCL's communicator: called by one thread at a time, with messages for its errors.
//!
//! A communicator blocks. One that does not would start and end a thread for each transfer. What waits for
//! other members, joining and connecting, runs on a thread of its own, so that the rank can stop waiting for
//! it. A transfer of connected members is only put on a stream.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use cudarc::nccl::sys::{self, ncclComm_t, ncclConfig_t, ncclResult_t, ncclUniqueId};
use parking_lot::Mutex;

use crate::cuda::{context, failure};
use crate::device::Device;
use crate::error::{Error, Result};

/// The time limit for an abort, because NCCL's abort can hang.
const ABORT: Duration = Duration::from_secs(10);

/// One member of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// This member's number, from 0.
    pub number: u32,
    /// The number of members. Each must have a GPU of its own.
    pub of: u32,
    /// This member's GPU.
    pub device: Device,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, of, device } = self;
        write!(f, "{device} (member {number} of {of})")
    }
}

/// A communicator, until it is aborted.
#[derive(Debug)]
pub(crate) struct Handle {
    /// Locked during a call.
    raw: Mutex<Option<Raw>>,
    /// Whether a call waits for a member that does not come. The communicator then stays as it is until the
    /// process ends, because it cannot be aborted during a call.
    is_stuck: AtomicBool,
    /// Whether an abort has ended. Held by the thread that aborts it.
    is_aborted: Mutex<bool>,
    /// Whose it is.
    member: Member,
}

#[derive(Clone, Copy, Debug)]
struct Raw(ncclComm_t);

// SAFETY: any thread may use NCCL's communicators, but only one at a time. The lock ensures that.
unsafe impl Send for Raw {}

impl Handle {
    /// Joins. Waits for the other members. The device's context must be the thread's current one.
    pub(crate) fn open(id: ncclUniqueId, member: Member) -> (Self, ncclResult_t) {
        let mut raw = ptr::null_mut();
        let mut config = config();
        let (of, number) = (member.of as i32, member.number as i32);
        // SAFETY: the caller has checked that the library is there. The pointers are to locals, which NCCL
        // does not keep.
        let code = unsafe { sys::ncclCommInitRankConfig(&mut raw, of, id, number, &mut config) };
        let handle = Self {
            raw: Mutex::new((!raw.is_null()).then_some(Raw(raw))),
            is_stuck: AtomicBool::new(false),
            is_aborted: Mutex::new(raw.is_null()),
            member,
        };
        (handle, code)
    }

    /// Notes that nobody waits for the call under way any more.
    pub(crate) fn give_up(&self) {
        self.is_stuck.store(true, Ordering::Release);
    }

    /// Calls NCCL with the communicator.
    ///
    /// # Errors
    /// When the communicator was aborted.
    pub(crate) fn call<T>(&self, call: impl FnOnce(ncclComm_t) -> T) -> Result<T> {
        match *self.raw.lock() {
            Some(Raw(raw)) => Ok(call(raw)),
            None => Err(Error::new(format!(
                "the transfers of {} have been ended, since another rank has stopped",
                self.member
            ))),
        }
    }

    /// The state of the operation that was started.
    pub(crate) fn state(&self) -> Result<ncclResult_t> {
        self.call(|raw| {
            let mut state = ncclResult_t::ncclSuccess;
            // SAFETY: the communicator is alive, and the pointer is to a local.
            match unsafe { sys::ncclCommGetAsyncError(raw, &mut state) } {
                ncclResult_t::ncclSuccess => state,
                code => code,
            }
        })
    }

    /// Aborts the communicator. Waits for that for a limited time, also when another thread has begun it: a
    /// process that ends in the middle of an abort crashes. Returns whether it has ended: if not, transfers
    /// may go on.
    pub(crate) fn abort(&self) -> bool {
        if self.is_stuck.load(Ordering::Acquire) {
            return false;
        }
        let Some(mut is_aborted) = self.is_aborted.try_lock_for(ABORT) else {
            return false;
        };
        let Some(raw) = self.raw.try_lock_for(ABORT).and_then(|mut raw| raw.take()) else {
            return *is_aborted;
        };
        let (done, ended) = mpsc::channel();
        let abort = move || {
            // The closure must capture all of `Raw`, because a bare pointer cannot go to another thread.
            let raw: Raw = raw;
            // SAFETY: nobody else has the communicator any more. The lock was free, so no thread is in a call
            // with it.
            unsafe { sys::ncclCommAbort(raw.0) };
            // After the time limit nobody receives this.
            let _ = done.send(());
        };
        // If no thread can be started, the communicator stays until the process ends.
        let started = thread::Builder::new().name("abort".to_owned()).spawn(abort);
        *is_aborted = started.is_ok() && ended.recv_timeout(ABORT).is_ok();
        *is_aborted
    }

    /// Checks the result of a call.
    pub(crate) fn succeeded(&self, call: &str, code: ncclResult_t) -> Result<()> {
        match code {
            ncclResult_t::ncclSuccess => Ok(()),
            code => Err(self.failed(call, code)),
        }
    }

    /// The error for a failed NCCL call. It says what was being done, and what to do.
    pub(crate) fn failed(&self, call: &str, code: ncclResult_t) -> Error {
        let raw = self.raw.lock().map_or(ptr::null_mut(), |raw| raw.0);
        let meaning = describe(raw, code);
        if code == ncclResult_t::ncclUnhandledCudaError && meaning.contains("out of memory") {
            return failure::no_memory_for(call);
        }
        Error::new(format!("NCCL: {call}: {}: {meaning}; {}", self.member, remedy(code, &meaning)))
    }

    /// Whose it is.
    pub(crate) fn member(&self) -> Member {
        self.member
    }
}

/// The error for a call that exceeded its deadline.
pub(crate) fn too_late(member: Member, call: &str, deadline: Duration) -> Error {
    Error::new(format!(
        "NCCL: {call}: {member}: not done within {} s, although all processes are there: NCCL_DEBUG=INFO \
         tells how far it came, NCCL_SOCKET_IFNAME names the network to use; or give more time \
         (launch.deadline)",
        deadline.as_secs_f64()
    ))
}

/// The error when NCCL returns no id. There is no communicator yet.
pub(crate) fn cannot_begin(code: ncclResult_t) -> Error {
    Error::new(format!("NCCL cannot begin: {}", describe(ptr::null_mut(), code)))
}

/// NCCL's description of a result, and of its last error.
fn describe(raw: ncclComm_t, code: ncclResult_t) -> String {
    // SAFETY: the library is there, because the result came from it. Both functions return nothing, or text
    // that stays valid until the next call.
    let [general, last] = unsafe { [sys::ncclGetErrorString(code), sys::ncclGetLastError(raw)] }.map(text);
    match last.trim() {
        "" => general,
        last => format!("{general}: {last}"),
    }
}

fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: NCCL's texts end with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn remedy(code: ncclResult_t, meaning: &str) -> String {
    // The wording of NCCL up to 2.29, and the wording since then.
    if meaning.contains("Duplicate GPU") || meaning.contains("using the same GPU") {
        return format!(
            "ranks that send to other processes need a GPU each: give each process its own \
             (pipeline.devices, CUDA_VISIBLE_DEVICES; {} is the first one that a process sees); to try \
             things out, processes may share one if each has its own NCCL_HOSTID",
            Device::Cuda(0)
        );
    }
    let text = match code {
        ncclResult_t::ncclRemoteError | ncclResult_t::ncclSystemError => {
            "see the other processes' output, and the network (NCCL_SOCKET_IFNAME names the one to use)"
        }
        _ => "NCCL_DEBUG=WARN tells more",
    };
    text.to_owned()
}

/// The most thread blocks of a transfer's kernel. It waits on the device for the other member, and products
/// cannot use its multiprocessors meanwhile. Inside of a host NCCL would take up to 32 for each peer, which
/// is a quarter of an H100. Over a network it takes a few in any case.
const MOST_BLOCKS: i32 = 8;

/// The configuration of a communicator. NCCL chooses all else.
fn config() -> ncclConfig_t {
    /// NCCL's value for an option that is not set.
    const UNSET: i32 = i32::MIN;
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22809,
        blocking: 1,
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: MOST_BLOCKS,
        netName: ptr::null(),
        splitShare: UNSET,
        trafficClass: UNSET,
        commName: ptr::null(),
        collnetEnable: UNSET,
        CTAPolicy: UNSET,
        shrinkShare: UNSET,
        nvlsCTAs: UNSET,
        nChannelsPerNetPeer: UNSET,
        nvlinkCentricSched: UNSET,
    }
}

/// Starts a call that waits for other members, on a thread of its own. Returns where its result comes.
///
/// # Errors
/// When the system cannot start a thread.
pub(crate) fn aside<T: Send + 'static>(
    gpu: u32,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<Receiver<Result<T>>> {
    let (done, result) = mpsc::channel();
    let task = move || {
        // If the caller has given up, nobody receives this.
        let _ = done.send(context::enter(gpu).map(|()| call()));
    };
    thread::Builder::new().name(format!("nccl of cuda:{gpu}")).spawn(task).map_err(Error::from)?;
    Ok(result)
}
