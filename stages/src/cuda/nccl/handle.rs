//! NCCL's communicator: one call at a time, from whatever thread, and the words for what it reports.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cudarc::nccl::sys::{self, ncclComm_t, ncclConfig_t, ncclResult_t, ncclUniqueId};
use parking_lot::Mutex;

use super::Member;
use crate::error::{Error, NcclError, NcclRemedy, Result};

/// How long an abort may take: it can hang itself.
const ABORT: Duration = Duration::from_secs(10);

/// A communicator until it is aborted.
#[derive(Debug)]
pub(super) struct Handle {
    raw: Mutex<Option<Raw>>,
    /// Whose it is.
    member: Member,
}

#[derive(Clone, Copy, Debug)]
struct Raw(ncclComm_t);

// SAFETY: NCCL's communicators may be used from any thread, one at a time: the lock sees to that.
unsafe impl Send for Raw {}

impl Handle {
    /// Begins to join. The thread's context has to be the device's.
    pub(super) fn open(id: ncclUniqueId, member: Member) -> (Self, ncclResult_t) {
        let mut raw = ptr::null_mut();
        let mut config = config();
        let (of, number) = (member.of as i32, member.number as i32);
        // SAFETY: the caller has seen that the library is there; the pointers are to locals, which NCCL does not keep.
        let code = unsafe { sys::ncclCommInitRankConfig(&mut raw, of, id, number, &mut config) };
        let handle = Self {
            raw: Mutex::new((!raw.is_null()).then_some(Raw(raw))),
            member,
        };
        (handle, code)
    }

    /// Calls NCCL with the communicator.
    ///
    /// # Errors
    /// When it was aborted.
    pub(super) fn call<T>(&self, call: impl FnOnce(ncclComm_t) -> T) -> Result<T> {
        match *self.raw.lock() {
            Some(Raw(raw)) => Ok(call(raw)),
            None => Err(NcclError::Ended { member: self.member }.into()),
        }
    }

    /// How far what was begun is.
    pub(super) fn state(&self) -> Result<ncclResult_t> {
        self.call(|raw| {
            let mut state = ncclResult_t::ncclSuccess;
            // SAFETY: the communicator is alive, and the pointer is to a local.
            match unsafe { sys::ncclCommGetAsyncError(raw, &mut state) } {
                ncclResult_t::ncclSuccess => state,
                code => code,
            }
        })
    }

    /// Ends it. Waits for that, but not for ever.
    pub(super) fn abort(&self) {
        let Some(raw) = self.raw.lock().take() else {
            return;
        };
        let (done, ended) = mpsc::channel();
        let abort = move || {
            // All of it: the pointer alone cannot go to another thread.
            let raw: Raw = raw;
            // SAFETY: nobody else has the communicator any more, and no thread is in a call with it, as the lock was free.
            unsafe { sys::ncclCommAbort(raw.0) };
            // If it took too long, nobody listens.
            let _ = done.send(());
        };
        // Without a thread for it the communicator stays, until the process ends.
        if thread::Builder::new()
            .name("abort".to_owned())
            .spawn(abort)
            .is_ok()
        {
            let _ = ended.recv_timeout(ABORT);
        }
    }

    /// What NCCL refused or lost: says what was being done, and what to do.
    pub(super) fn failed(&self, call: &str, code: ncclResult_t) -> Error {
        let raw = self.raw.lock().map_or(ptr::null_mut(), |raw| raw.0);
        let meaning = describe(raw, code);
        let error = NcclError::Refused {
            call: call.to_owned(),
            member: self.member,
            code: code as u32,
            remedy: remedy(code, &meaning),
            meaning,
        };
        error.into()
    }

    /// Something has not come in time.
    pub(super) fn too_late(&self, call: &str, deadline: Duration) -> Error {
        let error = NcclError::TooLate {
            call: call.to_owned(),
            member: self.member,
            deadline,
        };
        error.into()
    }
}

/// What NCCL says when it gives no id, so that there is no communicator yet.
pub(super) fn cannot_begin(code: ncclResult_t) -> Error {
    let error = NcclError::CannotBegin {
        code: code as u32,
        meaning: describe(ptr::null_mut(), code),
    };
    error.into()
}

/// NCCL's words for a result, and for the last thing that went wrong.
fn describe(raw: ncclComm_t, code: ncclResult_t) -> String {
    // SAFETY: the library is there, as it gave the result; both give text that stays until the next call, or nothing.
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
    // SAFETY: NCCL's texts end with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn remedy(code: ncclResult_t, meaning: &str) -> NcclRemedy {
    // The words of NCCL up to 2.29, and from then on.
    if meaning.contains("Duplicate GPU") || meaning.contains("using the same GPU") {
        return NcclRemedy::OwnGpu;
    }
    match code {
        ncclResult_t::ncclRemoteError | ncclResult_t::ncclSystemError => NcclRemedy::OthersOrNetwork,
        _ => NcclRemedy::Debug,
    }
}

/// A communicator that does not block; all else as NCCL finds best.
fn config() -> ncclConfig_t {
    /// What NCCL takes for "not said".
    const UNSET: i32 = i32::MIN;
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22809,
        blocking: 0,
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: UNSET,
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
