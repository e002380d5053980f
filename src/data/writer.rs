//! Writes token files.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Width;
use super::index::{self, Index};
use crate::error::{Error, Result};

/// Writes a token file, and Megatron's index of it if there shall be one.
///
/// The files have their names only when they are complete: [`TokenWriter::finish`] gives them.
#[derive(Debug)]
pub struct TokenWriter {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    width: Width,
    count: u64,
    ends: Vec<u64>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The tokens.
    pub tokens: u64,
    /// The documents.
    pub documents: u64,
}

impl TokenWriter {
    /// Begins a token file with tokens of this width. `path` is the name of the `.bin`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path, width: Width) -> Result<Self> {
        let partial = partial(path);
        let file = File::create(&partial).map_err(Error::io("write", &partial))?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(BufWriter::with_capacity(1 << 18, file)),
            width,
            count: 0,
            ends: Vec::new(),
        })
    }

    /// Adds tokens, all of which fit the width.
    ///
    /// # Errors
    /// When the file cannot be written, as on a full disk.
    pub fn add(&mut self, tokens: &[u32]) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        self.count += tokens.len() as u64;
        let written = tokens.iter().try_for_each(|token| match self.width {
            Width::U16 => file.write_all(&(*token as u16).to_le_bytes()),
            Width::U32 => file.write_all(&token.to_le_bytes()),
        });
        written.map_err(Error::io("write", &self.path))
    }

    /// Ends a document after the tokens that were added so far.
    pub fn end_document(&mut self) {
        self.ends.push(self.count);
    }

    /// Completes the file, and writes its index if `indexed`.
    ///
    /// # Errors
    /// When a file cannot be written, or when a document is too long for an index.
    pub fn finish(mut self, indexed: bool) -> Result<Written> {
        if let Some(file) = self.file.take() {
            complete(file, &self.path)?;
        }
        let written = Written {
            tokens: self.count,
            documents: self.ends.len() as u64,
        };
        let index = self.path.with_extension("idx");
        if indexed {
            let made = File::create(partial(&index)).map_err(Error::io("write", &index))?;
            let mut file = BufWriter::new(made);
            let (width, ends) = (self.width, std::mem::take(&mut self.ends));
            index::write(&index, &mut file, &Index { width, ends })?;
            complete(file, &index)?;
        }
        name(&self.path)?;
        // Last: an index without its tokens would be refused.
        if indexed {
            name(&index)?;
        }
        Ok(written)
    }
}

impl Drop for TokenWriter {
    fn drop(&mut self) {
        // After a success there is nothing of these names.
        let _ = fs::remove_file(partial(&self.path));
        let _ = fs::remove_file(partial(&self.path.with_extension("idx")));
    }
}

/// Writes what is buffered, and waits until it is on the disk.
fn complete(file: BufWriter<File>, path: &Path) -> Result<()> {
    let file = file.into_inner().map_err(std::io::IntoInnerError::into_error);
    let synced = file.and_then(|file| file.sync_all());
    synced.map_err(Error::io("write", path))
}

/// Gives a complete file its name.
fn name(path: &Path) -> Result<()> {
    fs::rename(partial(path), path).map_err(Error::io("write", path))
}

/// The name of a file until it is complete. It differs between processes.
fn partial(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.partial", std::process::id()))
}
