//! A file as memory: the system reads a page of it when somebody first looks at it, and pages that it keeps
//! anyway are not copied.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file's numbers, from its first byte on. Nobody may change the file meanwhile: its new numbers could be
/// seen, and a process that reads behind its new end is killed.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<f32>,
    bytes: usize,
}

// SAFETY: it is memory that nobody writes to.
#[allow(unsafe_code, reason = "a pointer says nothing about threads")]
unsafe impl Send for Map {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a pointer says nothing about threads")]
unsafe impl Sync for Map {}

impl Map {
    /// The first `bytes` bytes of a file. It has at least as many.
    pub(crate) fn of(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: it is new memory, wherever the system puts it. It is only read, and so is the file.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0)? };
        let start = NonNull::new(start.cast()).expect("the system gives a place");
        Ok(Self { start, bytes })
    }
}

impl AsRef<[f32]> for Map {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: `bytes` bytes are there until the map is dropped, a page is aligned, and all bits are
        // numbers.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / size_of::<f32>())
        }
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes are there until the map is dropped, and all bits are bytes.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes)
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the system gave exactly this memory, and nobody has a part of it any more.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        let freed = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(freed.is_ok());
    }
}
