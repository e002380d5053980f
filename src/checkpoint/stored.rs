//! Copies of checkpoints in a store of objects.
//!
//! A manifest makes a copy whole: it is written last, and names the objects with their sizes and checksums.
//! An upload that was cut before leaves objects that no manifest names.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use pipewright_schedule::error::Problem;
use serde::{Deserialize, Serialize};

use super::Checkpoint;
use super::damage::damaged;
use super::folder::{self, MODEL, OPTIMIZER, STATE};
use super::state::{State, check_seal, sealed};
use super::write::Partial;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{CheckpointError, Error, Result, StoreError};
use crate::store::{Fetching, Object, Store};

/// The format of a manifest that this version writes.
const FORMAT: u32 = 1;

/// A whole checkpoint in a store, as its manifest describes it.
#[derive(Clone, Debug)]
pub struct Stored {
    store: Store,
    manifest: Manifest,
    /// The steps after which the one before it was made.
    older: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    step: u64,
    files: BTreeMap<String, Entry>,
}

/// What a manifest knows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    bytes: u64,
    checksum: Checksum,
}

/// The name of the manifest of a checkpoint.
fn manifest_name(step: u64) -> String {
    format!("step-{step:08}.json")
}

/// The steps of the checkpoints in a store, in order.
fn steps(store: &Store) -> Result<Vec<u64>> {
    let names = store.names()?;
    let step = |name: &String| folder::named_step(Path::new(name.strip_suffix(".json")?));
    let mut steps: Vec<u64> = names.iter().filter_map(step).collect();
    steps.sort_unstable();
    Ok(steps)
}

impl Manifest {
    fn parse(url: &str, bytes: &[u8], step: u64) -> Result<Self> {
        let path = Path::new(url);
        if !check_seal(path, bytes)? {
            return Err(damaged(path, "its checksum is missing"));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| damaged(path, error))?;
        if manifest.format != FORMAT {
            let found = manifest.format;
            let text = format!("{url}: its format is {found}, this program reads {FORMAT}");
            return Err(CheckpointError::new(text).into());
        }
        // Names from elsewhere must not become paths on this machine.
        let names: Vec<&str> = manifest.files.keys().map(String::as_str).collect();
        match names == [MODEL, OPTIMIZER, STATE] && manifest.step == step {
            true => Ok(manifest),
            false => Err(damaged(path, "it does not describe this checkpoint")),
        }
    }

    /// The name of an object of the checkpoint.
    fn object(&self, name: &str) -> String {
        object_name(self.step, self.files[STATE].checksum, name)
    }
}

/// The name of a checkpoint's object. The checksum of its description is part of it.
fn object_name(step: u64, description: Checksum, name: &str) -> String {
    format!("step-{step:08}/{description}/{name}")
}

impl Stored {
    /// The newest checkpoint in a store. `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Checkpoint`] when its manifest is damaged.
    pub fn newest(store: &Store) -> Result<Option<Self>> {
        let mut steps = steps(store)?;
        let Some(step) = steps.pop() else {
            return Ok(None);
        };
        let older = steps.pop();
        let read = Self::of(store, step, older);
        read.map_err(|error| match error {
            Error::Checkpoint(_) => {
                let cure = cure(store, step, older);
                CheckpointError::because(format!("{error}: {cure}"), error).into()
            }
            error => error,
        })
    }

    fn of(store: &Store, step: u64, older: Option<u64>) -> Result<Option<Self>> {
        let name = manifest_name(step);
        let Some(bytes) = store.read(&name)? else {
            return Ok(None);
        };
        let manifest = Manifest::parse(&store.url_of(&name), &bytes, step)?;
        Ok(Some(Self { store: store.clone(), manifest, older }))
    }

    /// The number of optimizer steps done.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// Where its manifest is.
    pub fn url(&self) -> String {
        self.store.url_of(&manifest_name(self.step()))
    }

    /// The config of the run that saved it.
    ///
    /// # Errors
    /// As for [`Stored::fetch`].
    pub fn config(&self) -> Result<String> {
        let mut text = Vec::new();
        self.read(STATE, &mut |piece| {
            text.extend_from_slice(piece);
            Ok(())
        })?;
        let url = self.store.url_of(&self.manifest.object(STATE));
        Ok(State::parse(Path::new(&url), &text)?.config)
    }

    /// Brings it to a folder of this machine. Every byte is compared with the manifest before the folder is
    /// there. It replaces an older checkpoint. `tell` hears how far this is.
    ///
    /// # Errors
    /// [`Error::Store`], which names the object that is missing or damaged; [`Error::Checkpoint`] when
    /// something else than a checkpoint is at `place`, or another program is saving there; [`Error::Io`].
    pub fn fetch(&self, place: &Path, tell: &mut dyn FnMut(Fetching<'_>)) -> Result<()> {
        folder::check_named(place, self.step())?;
        let partial = Partial::begin(place)?;
        let url = self.url();
        let sizes = self.manifest.files.values().map(|entry| entry.bytes);
        let (mut bytes, all) = (0, sizes.fold(0, u64::saturating_add));
        for name in self.manifest.files.keys() {
            let path = partial.path.join(name);
            let mut file = File::create(&path).map_err(Error::io("create", &path))?;
            self.read(name, &mut |piece| {
                file.write_all(piece).map_err(Error::io("write", &path))?;
                bytes += piece.len() as u64;
                tell(Fetching { url: &url, bytes, all });
                Ok(())
            })?;
            file.sync_all().map_err(Error::io("write", &path))?;
        }
        folder::replace(place)
    }

    /// Reads an object, and compares it with the manifest.
    fn read(&self, name: &str, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Entry { bytes: expected, checksum } = self.manifest.files[name];
        let object = self.object(name)?;
        if object.bytes != expected {
            let url = self.store.url_of(&object.name);
            return Err(StoreError::Length { url, expected, found: object.bytes }.into());
        }
        let mut sum = ChecksumBuilder::new();
        self.store.download(&object, &mut |piece| {
            sum.add(piece);
            take(piece)
        })?;
        let found = sum.checksum();
        match found == checksum {
            true => Ok(()),
            false => {
                let url = self.store.url_of(&object.name);
                let cure = cure(&self.store, self.step(), self.older);
                Err(StoreError::Damaged { url, expected: checksum, found, cure }.into())
            }
        }
    }

    fn object(&self, name: &str) -> Result<Object> {
        let name = self.manifest.object(name);
        self.store.find(&name)?.ok_or_else(|| {
            let source = Problem::new(format!("{} names it", self.url()));
            StoreError::Missing { what: "read", url: self.store.url_of(&name), source }.into()
        })
    }

    /// Whether the store has all its objects, by their sizes.
    fn is_complete(&self) -> Result<bool> {
        for (name, entry) in &self.manifest.files {
            let found = self.store.find(&self.manifest.object(name))?;
            if found.is_none_or(|object| object.bytes != entry.bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What to do about a checkpoint of a store that is damaged.
fn cure(store: &Store, step: u64, older: Option<u64>) -> String {
    match older {
        Some(older) => format!(
            "remove the object {} to continue from the checkpoint after {older} steps",
            store.url_of(&manifest_name(step))
        ),
        None => "there is no earlier one there".to_owned(),
    }
}

/// Copies a checkpoint to a store, unless it is there. Returns whether it was copied. Nobody finds the copy
/// before all of it is there, and an older copy stays until then.
///
/// # Errors
/// [`Error::Store`], [`Error::Checkpoint`], [`Error::Io`].
pub fn copy_to(checkpoint: &Path, store: &Store) -> Result<bool> {
    let opened = Checkpoint::open(checkpoint)?;
    let (step, description) = (opened.step(), opened.description());
    let there = match Stored::of(store, step, None) {
        // A damaged manifest is replaced.
        Err(Error::Checkpoint(_)) => None,
        there => there?,
    };
    if let Some(there) = there.filter(|there| there.manifest.files[STATE].checksum == description)
        && there.is_complete()?
    {
        return Ok(false);
    }
    let mut files = BTreeMap::new();
    // The description last: if somebody replaces the checkpoint meanwhile, that is seen by its checksum.
    for name in [MODEL, OPTIMIZER, STATE] {
        let object = object_name(step, description, name);
        let (bytes, checksum) = store.upload(&object, &checkpoint.join(name))?;
        files.insert(name.to_owned(), Entry { bytes, checksum });
    }
    if files[STATE].checksum != description {
        let folder = checkpoint.display();
        return Err(CheckpointError::new(format!("{folder} was replaced while it was copied")).into());
    }
    let manifest = Manifest { format: FORMAT, step, files };
    store.put(&manifest_name(step), sealed(&manifest).as_bytes())?;
    Ok(true)
}

/// Removes the manifest of a copy, so that no run continues from it.
///
/// # Errors
/// [`Error::Store`], [`Error::Io`].
pub fn remove_copy(store: &Store, step: u64) -> Result<()> {
    store.remove(&manifest_name(step))
}

/// The steps after which the newest checkpoint of a store was made. `None` if there is none.
///
/// # Errors
/// [`Error::Store`], [`Error::Io`].
pub(crate) fn newest_step(store: &Store) -> Result<Option<u64>> {
    Ok(steps(store)?.pop())
}
