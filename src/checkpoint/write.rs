//! Writing: the caller's thread lays out the files, each rank fills in its own tensors, a rename ends it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pipewright_stages::Parameter;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::{ASIDE, FORMAT, MODEL, Named, OPTIMIZER, STATE, State, beside, state_name, tensors};
use crate::error::{Error, Result};
use crate::worker::ParameterInfo;

/// A checkpoint being written. Dropped before [`Draft::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    place: PathBuf,
    folder: PathBuf,
    /// In the process that makes the checkpoint.
    partial: Option<Partial>,
    model: Layout,
    optimizer: Layout,
    states: &'static [&'static str],
}

/// The folder a checkpoint is written in; what is left of it goes when this is dropped.
#[derive(Debug)]
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // After a failure that has been reported already; once the folder is renamed there is nothing to remove.
        let _ = remove(&self.0);
    }
}

/// Where each tensor of a safetensors file begins.
#[derive(Debug)]
struct Layout {
    path: PathBuf,
    offsets: HashMap<String, u64>,
}

impl Draft {
    /// Lays out a checkpoint for these parameters, to be put at `place`.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder or its files cannot be made.
    pub fn create(
        place: &Path,
        parameters: &[ParameterInfo],
        states: &'static [&'static str],
    ) -> Result<Self> {
        let folder = beside(place, "partial");
        remove(&folder)?;
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let partial = Partial(folder);
        let draft = Self::lay_out(place, parameters, states, Layout::create)?;
        Ok(Self {
            partial: Some(partial),
            ..draft
        })
    }

    /// The same checkpoint in a process other than the one that lays it out, to be filled in once that is done.
    ///
    /// # Errors
    /// None: both ways of beginning one are called alike.
    pub fn beside(
        place: &Path,
        parameters: &[ParameterInfo],
        states: &'static [&'static str],
    ) -> Result<Self> {
        Self::lay_out(place, parameters, states, Layout::of)
    }

    fn lay_out(
        place: &Path,
        parameters: &[ParameterInfo],
        states: &'static [&'static str],
        layout: fn(PathBuf, &[Named]) -> Result<Layout>,
    ) -> Result<Self> {
        let folder = beside(place, "partial");
        let (model, optimizer) = tensors(parameters, states);
        Ok(Self {
            place: place.to_owned(),
            model: layout(folder.join(MODEL), &model)?,
            optimizer: layout(folder.join(OPTIMIZER), &optimizer)?,
            folder,
            partial: None,
            states,
        })
    }

    /// Writes these parameters and their optimizer state; called by the rank that holds them.
    ///
    /// # Errors
    /// [`Error::Io`], when the disk is full for one.
    pub fn write<'a>(&self, parameters: impl Iterator<Item = &'a Parameter>) -> Result<()> {
        self.check_laid_out()?;
        let mut model = self.model.open()?;
        let mut optimizer = self.optimizer.open()?;
        for parameter in parameters {
            self.model.write(&mut model, parameter.name(), &parameter.value)?;
            // Before the first step there is no state; the file's zeros are what it starts from.
            for (state, numbers) in self.states.iter().zip(&parameter.state) {
                self.optimizer
                    .write(&mut optimizer, &state_name(parameter.name(), state), numbers)?;
            }
        }
        model.sync_all().map_err(Error::io("write", &self.model.path))?;
        optimizer
            .sync_all()
            .map_err(Error::io("write", &self.optimizer.path))
    }

    /// Refuses a folder that another process has laid out where this one does not see it.
    fn check_laid_out(&self) -> Result<()> {
        if self.partial.is_some() || self.folder.exists() {
            return Ok(());
        }
        Err(Error::Checkpoint(format!(
            "{} is not there, although process 0 has made it: the processes of a run need one file system for its folder",
            self.folder.display()
        )))
    }

    /// Completes the checkpoint and puts it in its place; one that stood there is replaced.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(&self, step: u64, config: &str) -> Result<()> {
        let state = State {
            format: FORMAT,
            step,
            config: config.to_owned(),
        };
        let text = serde_json::to_string_pretty(&state).expect("numbers and text always serialise");
        let path = self.folder.join(STATE);
        let mut file = File::create(&path).map_err(Error::io("create", &path))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(Error::io("write", &path))?;
        sync(&self.folder)?;
        self.replace()
    }

    /// Renames the folder into place. Whatever stood there steps aside first, where [`Checkpoint::open`] finds it should all end
    /// between the two renames.
    ///
    /// [`Checkpoint::open`]: super::Checkpoint::open
    fn replace(&self) -> Result<()> {
        let old = beside(&self.place, ASIDE);
        if self.place.exists() {
            remove(&old)?;
            fs::rename(&self.place, &old).map_err(Error::io("replace", &self.place))?;
        }
        if let Err(error) = fs::rename(&self.folder, &self.place) {
            // If this fails too, the old one is still found where it is.
            let _ = fs::rename(&old, &self.place);
            return Err(Error::io("rename into place", &self.place)(error));
        }
        if let Some(parent) = self
            .place
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            sync(parent)?;
        }
        remove(&old)
    }
}

impl Layout {
    fn create(path: PathBuf, tensors: &[Named]) -> Result<Self> {
        let (header, offsets, size) = layout(tensors);
        let mut file = File::create(&path).map_err(Error::io("create", &path))?;
        file.write_all(&header).map_err(Error::io("write", &path))?;
        file.set_len(size).map_err(Error::io("write", &path))?;
        Ok(Self { path, offsets })
    }

    /// That of a file that another process creates.
    fn of(path: PathBuf, tensors: &[Named]) -> Result<Self> {
        let (_, offsets, _) = layout(tensors);
        Ok(Self { path, offsets })
    }

    fn open(&self) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .open(&self.path)
            .map_err(Error::io("open", &self.path))
    }

    fn write(&self, file: &mut File, name: &str, numbers: &[f32]) -> Result<()> {
        let failed = || Error::io("write", &self.path);
        file.seek(SeekFrom::Start(self.offsets[name])).map_err(failed())?;
        file.write_all(bytemuck::cast_slice(numbers)).map_err(failed())
    }
}

/// A safetensors file without its data: the header with its length, where each tensor begins, the whole size.
fn layout(tensors: &[Named]) -> (Vec<u8>, HashMap<String, u64>, u64) {
    let mut end = 0;
    let mut infos = Vec::with_capacity(tensors.len());
    for (name, dims) in tensors {
        let begin = end;
        end += 4 * dims.iter().product::<usize>();
        let info = TensorInfo {
            dtype: Dtype::F32,
            shape: dims.clone(),
            data_offsets: (begin, end),
        };
        infos.push((name.clone(), info));
    }
    let begins: Vec<(String, usize)> = infos
        .iter()
        .map(|(name, info)| (name.clone(), info.data_offsets.0))
        .collect();
    let metadata = Metadata::new(None, infos).expect("names are unique and offsets follow on");
    let mut json = serde_json::to_vec(&metadata).expect("metadata always serialises");
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    let start = header.len() as u64;
    let offsets = begins
        .into_iter()
        .map(|(name, begin)| (name, start + begin as u64))
        .collect();
    (header, offsets, start + end as u64)
}

/// Removes a checkpoint's folder, if it is there.
///
/// # Errors
/// [`Error::Io`].
pub fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(Error::io("remove", folder))
}

/// Makes a folder's entries durable.
fn sync(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Error::io("write", folder))
}
