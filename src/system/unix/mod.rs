//! Unix: files, folders and programs.

mod signals;

use std::fs::{self, DirBuilder, File, FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub use signals::heed_file_limit;
pub(crate) use signals::{arrivals, questions};

/// Whether an open file or folder is still the one at this path.
pub(crate) fn is_at(open: &File, path: &Path) -> io::Result<bool> {
    let ids = |of: Metadata| (of.dev(), of.ino());
    Ok(ids(fs::metadata(path)?) == ids(open.metadata()?))
}

/// Fills `bytes` from `offset` on. Several threads may read one file at once.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(bytes, offset)
}

/// What is neither a file nor a folder.
pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_fifo() => "pipe",
        _ if kind.is_socket() => "socket",
        _ => "device",
    }
}

/// Fails if the process may not open this number of files more.
pub(crate) fn can_open(files: usize) -> io::Result<()> {
    let opened: io::Result<Vec<File>> = (0..files).map(|_| File::open("/dev/null")).collect();
    opened.map(drop)
}

/// Opens a folder, to lock it or to see whether it stays where it is.
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Waits until the disk has a folder's entries.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a folder, and those that it is in, into which only this user can look. It may be there.
pub fn make_own_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether somebody else could put a file into a folder.
pub fn others_may_write(folder: &Metadata) -> bool {
    // Without this file, only the folder's mode is checked.
    let own = Path::new("/proc/self").metadata();
    let foreign = own.is_ok_and(|own| own.uid() != folder.uid());
    foreign || folder.mode() & 0o022 != 0
}

/// Who may read, write and run a file, in nine bits and three more. `None` if the system has no such bits.
pub fn mode(file: &Metadata) -> Option<u32> {
    Some(file.mode() & 0o7777)
}

/// Makes a symbolic link `at` a path, `to` a file.
pub fn link(to: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

/// This process becomes another program. Returns only if it cannot, and why.
pub fn become_program(command: &mut Command) -> io::Error {
    command.exec()
}
