//! As `unix`, for Windows.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, IsTerminal};
use std::iter;
use std::os::windows::fs::{FileExt, OpenOptionsExt, symlink_file};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use same_file::Handle;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::{Arrival, Signal};

/// Without this flag, folders cannot be opened: `FILE_FLAG_BACKUP_SEMANTICS`.
const FOLDER: u32 = 0x0200_0000;

pub(crate) fn is_at(open: &File, path: &Path) -> io::Result<bool> {
    Ok(Handle::from_path(path)? == Handle::from_file(open.try_clone()?)?)
}

pub(crate) fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_read(bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                bytes = &mut bytes[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

pub(crate) fn kind_name(_: FileType) -> &'static str {
    "device"
}

/// There is no limit.
pub(crate) fn can_open(_: usize) -> io::Result<()> {
    Ok(())
}

pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(FOLDER).open(path)
}

/// The system has no way to wait for it.
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Folders of a user are closed to others.
pub fn make_own_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// As for [`make_own_folder`].
pub fn others_may_write(_: &Metadata) -> bool {
    false
}

/// There are no such bits.
pub fn mode(_: &Metadata) -> Option<u32> {
    None
}

/// Makes a symbolic link `at` a path, `to` a file.
pub fn link(to: &Path, at: &Path) -> io::Result<()> {
    symlink_file(to, at)
}

/// No process can.
pub fn become_program(_: &mut Command) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "Windows cannot replace a process by another program")
}

/// Ctrl-C, which is looked for ten times a second.
pub(crate) fn arrivals() -> io::Result<impl Iterator<Item = Arrival>> {
    let has_come = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, Arc::clone(&has_come))?;
    Ok(iter::repeat_with(move || {
        while !has_come.swap(false, Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(100));
        }
        Arrival { signal: Signal::Interrupt, is_typed: io::stdin().is_terminal() }
    }))
}

/// Nobody can ask.
pub(crate) fn questions() -> io::Result<impl Iterator<Item = ()>> {
    Ok(iter::empty())
}

/// A write beyond a limit is an error already.
pub fn heed_file_limit() -> io::Result<()> {
    Ok(())
}
