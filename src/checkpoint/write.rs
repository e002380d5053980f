//! Writing: the caller's thread lays out the files, each rank fills in its own tensors, a rename ends it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pipewright_stages::Parameter;
use serde::{Deserialize, Serialize};

use super::folder::{self, PARTIAL, beside};
use super::layout::{Layout, state_name, tensors};
use super::state::{FORMAT, State, Sums};
use super::{MODEL, OPTIMIZER, STATE, TensorInfo};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::Fingerprint;
use crate::error::{CheckpointError, Error, Result};

/// A checkpoint being written. Dropped before [`Draft::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    place: PathBuf,
    folder: PathBuf,
    /// In the process that makes the checkpoint.
    partial: Option<Partial>,
    model: TensorFile,
    optimizer: TensorFile,
    states: &'static [&'static str],
}

/// A tensor that a rank has written, and the checksum of its numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    optimizer: bool,
    tensor: String,
    checksum: Checksum,
}

/// The folder a checkpoint is written in; what is left of it goes when this is dropped.
#[derive(Debug)]
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // After a failure that has been reported already; once the folder is renamed there is nothing to remove.
        let _ = folder::clear(&self.0);
    }
}

/// A safetensors file that is being filled in.
#[derive(Debug)]
struct TensorFile {
    path: PathBuf,
    layout: Layout,
}

impl Draft {
    /// Lays out a checkpoint for these parameters, to be put at `place`.
    ///
    /// # Errors
    /// [`CheckpointError::NotOurs`] when something that is not a checkpoint stands there, which is left untouched;
    /// [`Error::Io`] when the folder or its files cannot be made.
    pub fn create(place: &Path, parameters: &[TensorInfo], states: &'static [&'static str]) -> Result<Self> {
        let partial = Partial(folder::begin(place)?);
        let draft = Self::lay_out(place, parameters, states);
        draft.model.create()?;
        draft.optimizer.create()?;
        Ok(Self {
            partial: Some(partial),
            ..draft
        })
    }

    /// The same checkpoint in a process other than the one that lays it out, to be filled in once that is done.
    ///
    /// # Errors
    /// None: both ways of beginning one are called alike.
    pub fn beside(place: &Path, parameters: &[TensorInfo], states: &'static [&'static str]) -> Result<Self> {
        Ok(Self::lay_out(place, parameters, states))
    }

    fn lay_out(place: &Path, parameters: &[TensorInfo], states: &'static [&'static str]) -> Self {
        let folder = beside(place, PARTIAL);
        let (model, optimizer) = tensors(parameters, states);
        Self {
            place: place.to_owned(),
            model: TensorFile::of(folder.join(MODEL), &model),
            optimizer: TensorFile::of(folder.join(OPTIMIZER), &optimizer),
            folder,
            partial: None,
            states,
        }
    }

    /// Writes these parameters and their optimizer state; called by the rank that holds them. Gives what it has
    /// written, for [`Draft::finish`].
    ///
    /// # Errors
    /// [`Error::Io`], when the disk is full for one.
    pub fn write<'a>(&self, parameters: impl Iterator<Item = &'a Parameter>) -> Result<Vec<Written>> {
        self.check_laid_out()?;
        let mut model = self.model.open()?;
        let mut optimizer = self.optimizer.open()?;
        let mut written = Vec::new();
        for parameter in parameters {
            let (name, numbers) = (parameter.name(), &parameter.value);
            let checksum = self.model.write(&mut model, name, numbers)?;
            written.push(Written {
                optimizer: false,
                tensor: name.to_owned(),
                checksum,
            });
            for (index, state) in self.states.iter().enumerate() {
                let tensor = state_name(name, state);
                let checksum = match parameter.state.get(index) {
                    Some(numbers) => self.optimizer.write(&mut optimizer, &tensor, numbers)?,
                    // Before the first step there is no state; the file's zeros are what it starts from.
                    None => of_zeros(parameter.value.len()),
                };
                written.push(Written {
                    optimizer: true,
                    tensor,
                    checksum,
                });
            }
        }
        model.sync_all().map_err(Error::io("write", &self.model.path))?;
        optimizer
            .sync_all()
            .map_err(Error::io("write", &self.optimizer.path))?;
        Ok(written)
    }

    /// Refuses a folder that another process has laid out where this one does not see it.
    fn check_laid_out(&self) -> Result<()> {
        if self.partial.is_some() || self.folder.exists() {
            return Ok(());
        }
        let folder = self.folder.clone();
        Err(CheckpointError::NotShared { folder }.into())
    }

    /// Completes the checkpoint with what all ranks have written and puts it in its place; one that stood there is
    /// replaced.
    ///
    /// # Errors
    /// [`CheckpointError::NotWritten`] when a tensor is missing, [`CheckpointError::OtherStep`] when the folder's name
    /// gives another step, [`Error::Io`].
    pub fn finish(
        &self,
        step: u64,
        config: &str,
        data: Option<Fingerprint>,
        written: Vec<Written>,
    ) -> Result<()> {
        folder::check_named(&self.place, step)?;
        let (optimizer, model): (Vec<_>, Vec<_>) = written.into_iter().partition(|one| one.optimizer);
        let files = [
            (MODEL.to_owned(), self.model.sums(model)?),
            (OPTIMIZER.to_owned(), self.optimizer.sums(optimizer)?),
        ];
        let state = State {
            format: FORMAT,
            step,
            config: config.to_owned(),
            data,
            files: files.into(),
        };
        let path = self.folder.join(STATE);
        let mut file = File::create(&path).map_err(Error::io("create", &path))?;
        file.write_all(state.to_text().as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(Error::io("write", &path))?;
        folder::replace(&self.place)
    }
}

impl TensorFile {
    fn of(path: PathBuf, tensors: &[TensorInfo]) -> Self {
        let layout = Layout::of(tensors);
        Self { path, layout }
    }

    fn create(&self) -> Result<()> {
        let mut file = File::create(&self.path).map_err(Error::io("create", &self.path))?;
        file.write_all(&self.layout.header)
            .and_then(|()| file.set_len(self.layout.size))
            .map_err(Error::io("write", &self.path))
    }

    fn open(&self) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .open(&self.path)
            .map_err(Error::io("open", &self.path))
    }

    fn write(&self, file: &mut File, tensor: &str, numbers: &[f32]) -> Result<Checksum> {
        let bytes = bytemuck::cast_slice(numbers);
        file.seek(SeekFrom::Start(self.layout.offsets[tensor]))
            .and_then(|_| file.write_all(bytes))
            .map_err(Error::io("write", &self.path))?;
        Ok(Checksum::of(bytes))
    }

    /// The checksums of the file, once every tensor is written.
    fn sums(&self, written: Vec<Written>) -> Result<Sums> {
        let pairs = written.into_iter().map(|one| (one.tensor, one.checksum));
        let tensors: BTreeMap<String, Checksum> = pairs.collect();
        let missing = self
            .layout
            .offsets
            .keys()
            .filter(|name| !tensors.contains_key(*name));
        match missing.min() {
            None => Ok(Sums {
                header: Checksum::of(&self.layout.header),
                tensors,
            }),
            Some(tensor) => Err(Error::from(CheckpointError::NotWritten {
                path: self.path.clone(),
                tensor: tensor.clone(),
            })),
        }
    }
}

/// The checksum of so many numbers that are 0.
fn of_zeros(count: usize) -> Checksum {
    let mut checksum = ChecksumBuilder::new();
    let zeros = [0; 1 << 12];
    let mut bytes = 4 * count;
    while bytes > 0 {
        let part = bytes.min(zeros.len());
        checksum.add(&zeros[..part]);
        bytes -= part;
    }
    checksum.checksum()
}
