//! Objects as files of this machine: fetched once, and kept.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::object::Object;
use super::objects::Store;
use super::place::{Place, parse};
use super::settings::Settings;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{Problem, StoreError};
use crate::whole::{self, parent, partial};
use crate::{Error, Result};

/// How far the work is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Fetching<'a> {
    /// What is fetched.
    pub url: &'a str,
    /// The bytes that are here.
    pub bytes: u64,
    /// The bytes of all objects.
    pub all: u64,
}

/// The path of a file or a folder on this machine with what is at `place`: an object, together with the
/// objects beside it whose names are its own and one of `beside`; or all objects below a prefix. They are
/// fetched into `cache`, unless they are there already: an object has a new path if its URL, its length or
/// its tag differs. If another process is fetching the same, this waits for it. `tell` hears how far this is.
///
/// For a folder, also as `file:///PATH`, nothing is fetched.
///
/// # Errors
/// [`Error::Store`], [`Error::Io`].
pub fn fetch(
    place: &str,
    settings: &Settings,
    beside: &[String],
    cache: &Path,
    tell: &mut dyn FnMut(Fetching<'_>),
) -> Result<PathBuf> {
    if let Place::Folder(path) = parse(place)? {
        return Ok(path.into());
    }
    let (store, objects, is_one) = find(place, settings, beside)?;
    let mut key = ChecksumBuilder::new();
    for object in &objects {
        key.add(key_of(&store, object).as_bytes());
    }
    let url = place.trim_end_matches('/');
    let name = url.rsplit('/').next().unwrap_or_default();
    let set = cache.join("sets").join(key.checksum().to_string()).join(name);
    let path = if is_one { set.join(&objects[0].name) } else { set.clone() };
    if set.exists() {
        return Ok(path);
    }
    let all = objects.iter().map(|object| object.bytes).sum();
    let mut bytes = 0;
    let mut files = Vec::new();
    for object in &objects {
        let mut add = |count| {
            bytes += count;
            tell(Fetching { url, bytes, all });
        };
        files.push((kept(&store, object, cache, &mut add)?, &object.name));
    }
    let _lock = lock(&set)?;
    if !set.exists() {
        whole::folder(&set, |folder| {
            files.iter().try_for_each(|(file, name)| link(file, &folder.join(name)))
        })?;
    }
    Ok(path)
}

/// The objects at a place, with the store that has them, and whether it names one object.
fn find(place: &str, settings: &Settings, beside: &[String]) -> Result<(Store, Vec<Object>, bool)> {
    let url = place.trim_end_matches('/');
    if let Some((folder, name)) = url.rsplit_once('/').filter(|_| !place.ends_with('/'))
        && matches!(parse(folder), Ok(Place::Bucket { .. }))
    {
        let store = Store::with(folder, settings)?;
        if let Some(object) = store.find(name)? {
            let mut objects = vec![object];
            for other in beside {
                objects.extend(store.find(other)?);
            }
            return Ok((store, objects, true));
        }
    }
    let store = Store::with(url, settings)?;
    // The consoles of stores make an empty object for a folder.
    let objects: Vec<_> = store.list()?.into_iter().filter(|object| object.bytes > 0).collect();
    match objects.is_empty() {
        false => Ok((store, objects, false)),
        true => {
            let source = Problem::new("there is neither an object of this name nor one below it");
            Err(StoreError::Missing { what: "read", url: url.to_owned(), source }.into())
        }
    }
}

/// What tells the contents of an object apart from others.
fn key_of(store: &Store, object: &Object) -> String {
    let Object { name, bytes, tag } = object;
    format!("{}\n{bytes}\n{}\n", store.url_of(name), tag.as_deref().unwrap_or_default())
}

/// The file with an object's contents. `add` hears of bytes as they come.
fn kept(store: &Store, object: &Object, cache: &Path, add: &mut dyn FnMut(u64)) -> Result<PathBuf> {
    let key = Checksum::of(key_of(store, object).as_bytes());
    let path = cache.join("objects").join(key.to_string());
    let is_here = || fs::metadata(&path).is_ok_and(|file| file.len() == object.bytes);
    if !is_here() {
        let _lock = lock(&path)?;
        if !is_here() {
            download(store, object, &path, add)?;
            return Ok(path);
        }
    }
    add(object.bytes);
    Ok(path)
}

fn download(store: &Store, object: &Object, path: &Path, add: &mut dyn FnMut(u64)) -> Result<()> {
    let partial = partial(path);
    let mut write = || {
        let mut file = File::create(&partial).map_err(Error::io("write", &partial))?;
        store.download(object, &mut |piece| {
            file.write_all(piece).map_err(Error::io("write", &partial))?;
            add(piece.len() as u64);
            Ok(())
        })?;
        file.sync_all().map_err(Error::io("write", &partial))?;
        fs::rename(&partial, path).map_err(Error::io("write", path))
    };
    write().inspect_err(|_| {
        // What failed is told, and not that something of it is left.
        let _ = fs::remove_file(&partial);
    })
}

/// Waits until no other process makes this path. Where the file system has no locks, it does not wait. The
/// system ends the lock with the process, for whatever reason.
fn lock(path: &Path) -> Result<File> {
    let folder = parent(path);
    fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let lock = path.with_file_name(format!(".{name}.lock"));
    let file = File::create(&lock).map_err(Error::io("write", &lock))?;
    let _ = file.lock();
    Ok(file)
}

/// Gives a file a second name. Where the file system cannot do that, it is copied.
fn link(file: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(parent(to)).map_err(Error::io("make", parent(to)))?;
    if fs::hard_link(file, to).is_err() {
        fs::copy(file, to).map_err(Error::io("write", to))?;
    }
    Ok(())
}
