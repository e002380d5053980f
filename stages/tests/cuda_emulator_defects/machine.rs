//! Programs of driver calls, and what the emulator says of them.

use std::ffi::c_void;
use std::ptr::from_mut;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUfunction, CUstream};
use libloading::os::unix::Library;
use parking_lot::{Mutex, MutexGuard};

use crate::driver;
use emulator::{Cuda, answer, tell};

pub(crate) use crate::driver::{allocate, kernel, stream};

/// The emulator, for one test at a time, because a complaint breaks a device.
pub(crate) struct Machine {
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    /// `None` if there is no emulator.
    pub(crate) fn alone() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !matches!(emulator::start(), Cuda::Emulated(_)) {
            return None;
        }
        let machine = Self { _alone: ALONE.lock() };
        machine.enter(0);
        machine.order("late");
        machine.complaint();
        Some(machine)
    }

    /// Makes a device current.
    pub(crate) fn enter(&self, device: i32) {
        assert!(driver::enter(device), "the emulator is there");
    }

    /// In which order streams run from here on.
    pub(crate) fn order(&self, streams: &str) {
        tell("pw_streams", streams);
    }

    /// The first complaint since the last call. All devices work again.
    pub(crate) fn complaint(&self) -> String {
        answer("pw_complaint")
    }

    /// Asserts that there is a complaint with these words, after all devices have done their work.
    pub(crate) fn assert_complains(&self, words: &[&str]) {
        self.finish();
        let complaint = self.complaint();
        for word in words {
            assert!(complaint.contains(word), "no {word:?} in {complaint:?}");
        }
    }

    /// Asserts that there is none.
    pub(crate) fn assert_silent(&self) {
        self.finish();
        assert_eq!(self.complaint(), "");
    }

    fn finish(&self) {
        for device in [1, 0] {
            self.enter(device);
            // A complaint has broken the device.
            let _ = result::ctx::synchronize();
        }
    }
}

/// By how much waiting transfers slow down a device's products.
pub(crate) fn slowdown(device: i32) -> f64 {
    // SAFETY: the library is loaded, and this is the function's signature.
    unsafe {
        let call =
            Library::this().get::<unsafe extern "C" fn(i32) -> f64>(b"pw_slowdown").map(|symbol| *symbol);
        call.expect("a function of the emulator")(device)
    }
}

/// An event of the current device.
pub(crate) fn event() -> CUevent {
    result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).expect("an event")
}

/// Lets `second` wait for what `first` has so far.
pub(crate) fn edge(first: CUstream, second: CUstream, device_of_first: (&Machine, i32)) {
    let (machine, device) = device_of_first;
    machine.enter(device);
    let done = event();
    // SAFETY: all are alive.
    unsafe {
        result::event::record(done, first).expect("a record");
        sys::cuStreamWaitEvent(second, done, 0).result().expect("a wait");
        result::event::destroy(done).expect("an event");
    }
}

pub(crate) fn synchronize(stream: CUstream) {
    // SAFETY: the stream is alive. A complaint breaks the device.
    let _ = unsafe { result::stream::synchronize(stream) };
}

pub(crate) fn free(at: CUdeviceptr, stream: CUstream) {
    // SAFETY: the stream is alive. A complaint may have broken the device.
    let _ = unsafe { result::free_async(at, stream) };
}

/// Writes `count` numbers.
pub(crate) fn fill(at: CUdeviceptr, count: usize, stream: CUstream) {
    // SAFETY: the tests allocate enough. A complaint may have broken the device.
    let _ = unsafe { result::memset_d8_async(at, 0, count * 4, stream) };
}

pub(crate) fn copy(to: CUdeviceptr, from: CUdeviceptr, count: usize, stream: CUstream) {
    // SAFETY: as above.
    let _ = unsafe { result::memcpy_dtod_async(to, from, count * 4, stream) };
}

/// Launches a kernel whose arguments are addresses.
pub(crate) fn launch(
    kernel: CUfunction,
    threads: u32,
    stream: CUstream,
    addresses: &mut [CUdeviceptr],
) -> Result<(), DriverError> {
    let mut arguments: Vec<*mut c_void> = addresses.iter_mut().map(|at| from_mut(at).cast()).collect();
    // SAFETY: each test passes the arguments of its kernel.
    unsafe { result::launch_kernel(kernel, (1, 1, 1), (threads, 1, 1), 0, stream, &mut arguments) }
}
