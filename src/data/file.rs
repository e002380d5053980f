//! Regular files of data, and reading at a place in them.

use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::path::Path;

use crate::error::{DataError, Error, FileProblem, Result};

/// What is wrong with this file.
pub(super) fn wrong(path: &Path, problem: FileProblem) -> Error {
    let path = path.to_owned();
    DataError::File { path, problem }.into()
}

/// Why a file or folder cannot be opened.
pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| DataError::Unreadable { path, source }.into()
}

/// What the system knows of a file or folder.
pub(super) fn metadata(path: &Path) -> Result<Metadata> {
    fs::metadata(path).map_err(unreadable(path))
}

/// Opens a regular file and tells its length. Others are refused before they are opened: opening a pipe
/// waits until somebody writes into it, and a device may never end.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let metadata = metadata(path)?;
    if !metadata.is_file() {
        return Err(wrong(path, problem(metadata.file_type())));
    }
    let file = File::open(path).map_err(unreadable(path))?;
    Ok((file, metadata.len()))
}

/// Why something that is not a regular file cannot be used.
fn problem(kind: FileType) -> FileProblem {
    if kind.is_dir() {
        return FileProblem::Folder;
    }
    FileProblem::NotRegular {
        kind: kind_name(kind),
    }
}

#[cfg(unix)]
fn kind_name(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        _ if kind.is_fifo() => "pipe",
        _ if kind.is_socket() => "socket",
        _ => "device",
    }
}

#[cfg(not(unix))]
fn kind_name(_: FileType) -> &'static str {
    "device"
}

/// Fills `bytes` with those from `offset` on. Threads may read one file at once.
#[cfg(unix)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// Fills `bytes` with those from `offset` on. Threads may read one file at once.
#[cfg(windows)]
pub(super) fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                bytes = &mut bytes[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}
