//! Writes checkpoints: the caller's thread lays out the files, each rank writes its own tensors, and a rename
//! completes it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pipewright_stages::optimizer::Optimizer;
use serde::{Deserialize, Serialize};

use super::encrypted::{self, Cipher};
use super::folder::{self, MODEL, OPTIMIZER, PARTIAL, STATE, beside};
use super::kept::Kept;
use super::key::Key;
use super::layout::{Layout, TensorInfo, state_tensors, states, weights};
use super::lock::Lock;
use super::state::{FORMAT, FileChecksums, State};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::Fingerprint;
use crate::error::{CheckpointError, Error, Result};

/// A checkpoint that is being written. If it is dropped before [`Draft::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    place: PathBuf,
    folder: PathBuf,
    /// Only in the process that makes the folder.
    partial: Option<Partial>,
    model: TensorFile,
    optimizer: TensorFile,
    /// With which it is encrypted, if it is.
    key: Option<Key>,
    /// The optimizer's tensors for each parameter that is trained.
    states: HashMap<String, Vec<TensorInfo>>,
}

/// A tensor that a rank has written: its name, and the checksum of its numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    optimizer: bool,
    tensor: String,
    checksum: Checksum,
}

/// Writes the parameters of one rank.
#[derive(Debug)]
pub struct Writer<'a> {
    draft: &'a Draft,
    model: Opened,
    optimizer: Opened,
    written: Vec<Written>,
}

/// The hidden folder in which a checkpoint is written. Dropping it removes what is left there.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) path: PathBuf,
    lock: Lock,
}

impl Partial {
    /// Makes the folder in which the checkpoint at `place` is written.
    pub(super) fn begin(place: &Path) -> Result<Self> {
        let lock = folder::begin(place)?;
        Ok(Self { path: beside(place, PARTIAL), lock })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is nothing to remove: what is there now belongs to another save.
        if self.lock.is_in_place() {
            // An error here follows an earlier one, which has been reported.
            let _ = folder::clear(&self.path);
        }
    }
}

/// A safetensors file whose tensors are being written.
#[derive(Debug)]
struct TensorFile {
    path: PathBuf,
    layout: Layout,
    /// With which it is encrypted, if it is.
    key: Option<Key>,
}

/// A file whose tensors a rank writes, and its cipher with the places of tensors, if it is encrypted.
#[derive(Debug)]
struct Opened {
    file: File,
    cipher: Option<(Cipher, BTreeMap<u64, u64>)>,
}

impl Writer<'_> {
    /// Writes a parameter and its optimizer state: `states` are the bytes of whole tensors, or none before
    /// the first step.
    ///
    /// # Errors
    /// [`Error::Io`], for example when the disk is full.
    pub fn write(&mut self, name: &str, numbers: Kept<'_>, states: &[&[u8]]) -> Result<()> {
        let draft = self.draft;
        let checksum = match numbers {
            Kept::Numbers(numbers) => {
                draft.model.write(&mut self.model, name, bytemuck::cast_slice(numbers))?
            }
            Kept::Elsewhere(checksum) => checksum,
        };
        self.written.push(Written { optimizer: false, tensor: name.to_owned(), checksum });
        for (index, tensor) in draft.states.get(name).into_iter().flatten().enumerate() {
            let checksum = match states.get(index) {
                Some(bytes) => draft.optimizer.write(&mut self.optimizer, &tensor.name, bytes)?,
                // Before the first step there is no state: the optimizer starts from the file's zeros.
                None if self.optimizer.cipher.is_none() => of_zeros(tensor.bytes()),
                None => draft.optimizer.write(&mut self.optimizer, &tensor.name, &vec![0; tensor.bytes()])?,
            };
            self.written.push(Written { optimizer: true, tensor: tensor.name.clone(), checksum });
        }
        Ok(())
    }

    /// Waits until all is on the disk. Returns what [`Draft::finish`] needs.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<Vec<Written>> {
        let Draft { model, optimizer, .. } = self.draft;
        self.model.file.sync_all().map_err(Error::io("write", &model.path))?;
        self.optimizer.file.sync_all().map_err(Error::io("write", &optimizer.path))?;
        Ok(self.written)
    }
}

impl Draft {
    /// Lays out a checkpoint for these parameters, to be saved at `place`.
    ///
    /// # Errors
    /// [`CheckpointError`] when something else than a checkpoint is there, which is left untouched, or when
    /// another program is saving to the same place. [`Error::Io`] when the folder or its files cannot be
    /// made.
    pub fn create(place: &Path, parameters: &[TensorInfo], optimizer: &dyn Optimizer) -> Result<Self> {
        let partial = Partial::begin(place)?;
        let draft = Self::lay_out(place, parameters, optimizer);
        draft.model.create()?;
        draft.optimizer.create()?;
        Ok(Self { partial: Some(partial), ..draft })
    }

    /// The same checkpoint in another process than the one that lays it out. That one must be done before the
    /// first write.
    ///
    /// # Errors
    /// None. It returns a `Result` so that it can be called like [`Draft::create`].
    pub fn beside(place: &Path, parameters: &[TensorInfo], optimizer: &dyn Optimizer) -> Result<Self> {
        Ok(Self::lay_out(place, parameters, optimizer))
    }

    fn lay_out(place: &Path, parameters: &[TensorInfo], optimizer: &dyn Optimizer) -> Self {
        let (folder, key) = (beside(place, PARTIAL), Key::in_use());
        let model = weights(parameters);
        let of_optimizer = states(&model, optimizer);
        let trained = model.iter().filter(|tensor| tensor.is_trained);
        let states = trained.map(|tensor| (tensor.name.clone(), state_tensors(tensor, optimizer)));
        let states = states.collect();
        Self {
            place: place.to_owned(),
            model: TensorFile::of(folder.join(MODEL), &here(&model), key.clone()),
            optimizer: TensorFile::of(folder.join(OPTIMIZER), &of_optimizer, key.clone()),
            key,
            folder,
            partial: None,
            states,
        }
    }

    /// Opens the files. Each rank that holds parameters calls it.
    ///
    /// # Errors
    /// [`CheckpointError::NotShared`] when this process cannot see the folder that another process has made.
    /// [`Error::Io`].
    pub fn open(&self) -> Result<Writer<'_>> {
        self.check_laid_out()?;
        Ok(Writer {
            draft: self,
            model: self.model.open()?,
            optimizer: self.optimizer.open()?,
            written: Vec::new(),
        })
    }

    /// Refuses to write if this process cannot see the folder that another process has made.
    fn check_laid_out(&self) -> Result<()> {
        if self.partial.is_some() || self.folder.exists() {
            return Ok(());
        }
        let folder = self.folder.clone();
        Err(CheckpointError::NotShared { folder }.into())
    }

    /// Completes the checkpoint with what all ranks have written, and renames it to its place. It replaces an
    /// older one.
    ///
    /// # Errors
    /// [`CheckpointError`] when a tensor is missing, or when the folder's name gives another step, and
    /// [`Error::Io`].
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
        let state = State { format: FORMAT, step, config: config.to_owned(), data, files: files.into() };
        let path = self.folder.join(STATE);
        let mut file = File::create(&path).map_err(Error::io("create", &path))?;
        encrypted::write_whole(self.key.as_ref(), &path, &mut file, state.to_text().as_bytes())?;
        file.sync_all().map_err(Error::io("write", &path))?;
        folder::replace(&self.place)
    }
}

impl TensorFile {
    fn of(path: PathBuf, tensors: &[TensorInfo], key: Option<Key>) -> Self {
        let layout = Layout::of(tensors);
        Self { path, layout, key }
    }

    fn create(&self) -> Result<()> {
        let Layout { header, parts, size, .. } = &self.layout;
        let mut file = File::create(&self.path).map_err(Error::io("create", &self.path))?;
        let Some(key) = &self.key else {
            return file
                .write_all(header)
                .and_then(|()| file.set_len(*size))
                .map_err(Error::io("write", &self.path));
        };
        let (cipher, start) = Cipher::create(key, &self.path, header.len() as u64)?;
        file.write_all(&start).map_err(Error::io("write", &self.path))?;
        cipher.write(&mut file, 0, header)?;
        let lengths = parts.iter().map(|(_, bytes)| encrypted::length(*bytes)).sum::<u64>();
        let whole = encrypted::START + encrypted::length(header.len() as u64) + lengths;
        file.set_len(whole).map_err(Error::io("write", &self.path))
    }

    /// Opens the file, which this process or another one has made.
    fn open(&self) -> Result<Opened> {
        let open = OpenOptions::new().read(true).write(true).open(&self.path);
        let mut file = open.map_err(Error::io("open", &self.path))?;
        let mut start = Vec::new();
        let read = (&mut file).take(encrypted::START).read_to_end(&mut start);
        read.map_err(Error::io("read", &self.path))?;
        let cipher = Cipher::open(self.key.as_ref(), &self.path, &start)?;
        let places = |first| encrypted::places(first, self.layout.parts.iter().copied());
        Ok(Opened { file, cipher: cipher.map(|(cipher, first)| (cipher, places(first))) })
    }

    fn write(&self, opened: &mut Opened, tensor: &str, bytes: &[u8]) -> Result<Checksum> {
        let (place, Opened { file, cipher }) = (self.layout.offsets[tensor], opened);
        let at = cipher.as_ref().map_or(place, |(_, places)| places[&place]);
        file.seek(SeekFrom::Start(at)).map_err(Error::io("write", &self.path))?;
        match cipher {
            Some((cipher, _)) => cipher.write(file, place, bytes)?,
            None => file.write_all(bytes).map_err(Error::io("write", &self.path))?,
        }
        Ok(Checksum::of(bytes))
    }

    /// The checksums of the file, once every tensor is written.
    fn sums(&self, written: Vec<Written>) -> Result<FileChecksums> {
        let pairs = written.into_iter().map(|one| (one.tensor, one.checksum));
        let tensors: BTreeMap<String, Checksum> = pairs.collect();
        let missing = self.layout.offsets.keys().filter(|name| !tensors.contains_key(*name));
        match missing.min() {
            None => Ok(FileChecksums { header: Checksum::of(&self.layout.header), tensors }),
            Some(tensor) => Err(Error::from(CheckpointError::new(format!(
                "{}: no rank has written `{tensor}`, so the checkpoint is not put in its place",
                self.path.display()
            )))),
        }
    }
}

/// The tensors whose numbers are in the file.
fn here(tensors: &[TensorInfo]) -> Vec<TensorInfo> {
    tensors.iter().filter(|tensor| !tensor.is_elsewhere).cloned().collect()
}

/// The checksum of this many bytes that are 0.
fn of_zeros(mut bytes: usize) -> Checksum {
    let mut checksum = ChecksumBuilder::new();
    let zeros = [0; 1 << 12];
    while bytes > 0 {
        let part = bytes.min(zeros.len());
        checksum.add(&zeros[..part]);
        bytes -= part;
    }
    checksum.checksum()
}
