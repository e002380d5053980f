//! Regular files of data, and reading at an offset in them.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read};
use std::path::Path;

use crate::checksum::ChecksumBuilder;
use crate::error::{DataError, Error, FileProblem, Result};

/// How many bytes are read at a time when a whole file is read.
const BLOCK: usize = 1 << 20;

/// The error for a problem with this file.
pub(super) fn wrong(path: &Path, problem: FileProblem) -> Error {
    let path = path.to_owned();
    DataError::File { path, problem }.into()
}

/// The error for a file or folder that cannot be opened.
pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| DataError::Unreadable { path, source }.into()
}

/// The system's metadata of a file or folder.
pub(super) fn metadata(path: &Path) -> Result<Metadata> {
    fs::metadata(path).map_err(unreadable(path))
}

/// Opens a regular file and returns its length. Others are refused before they are opened: opening a pipe
/// waits until somebody writes into it, and a device may never end.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let metadata = metadata(path)?;
    if !metadata.is_file() {
        return Err(wrong(path, problem(metadata.file_type())));
    }
    let file = File::open(path).map_err(unreadable(path))?;
    Ok((file, metadata.len()))
}

/// Adds the contents of a file to a checksum.
pub(super) fn add_to(checksum: &mut ChecksumBuilder, path: &Path) -> Result<()> {
    let (mut file, _) = open(path)?;
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block).map_err(Error::io("read", path))? {
            0 => return Ok(()),
            count => checksum.add(&block[..count]),
        }
    }
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

/// Fills `bytes` from `offset` on. Several threads may read one file at once.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// Fills `bytes` from `offset` on. Several threads may read one file at once.
#[cfg(windows)]
pub(crate) fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
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
