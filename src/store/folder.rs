//! A folder as a store: each file is an object.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::object::Object;
use crate::whole::{self, parent};
use crate::{Error, Result};

/// How many bytes are read at a time.
const BLOCK: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn at(path: &str) -> Self {
        Self(path.into())
    }

    pub(super) fn names(&self) -> Result<Vec<String>> {
        let files = entries(&self.0)?.into_iter().filter(|path| path.is_file());
        let names = files.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(names.filter(|name| is_whole(name)).collect())
    }

    pub(super) fn list(&self) -> Result<Vec<Object>> {
        let (mut objects, mut open) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = open.pop() {
            for path in entries(&folder)? {
                let name = path.strip_prefix(&self.0).unwrap_or(&path);
                let name: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
                match path.is_dir() {
                    true => open.push(path),
                    false => objects.extend(self.find(&name.join("/"))?),
                }
            }
        }
        objects.retain(|object| object.name.rsplit('/').next().is_some_and(is_whole));
        Ok(objects)
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<Object>> {
        let path = self.0.join(name);
        let metadata = there(fs::metadata(&path)).map_err(Error::io("read", &path))?;
        let files = metadata.filter(fs::Metadata::is_file);
        Ok(files.map(|file| Object { name: name.to_owned(), bytes: file.len(), tag: None }))
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.0.join(name);
        there(fs::read(&path)).map_err(Error::io("read", path))
    }

    pub(super) fn write(&self, name: &str, from: &mut dyn Read) -> Result<()> {
        let path = self.0.join(name);
        fs::create_dir_all(parent(&path)).map_err(Error::io("create", parent(&path)))?;
        whole::make(&path, |file| io::copy(from, file).map(drop)).map(drop)
    }

    pub(super) fn download(&self, object: &Object, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let path = self.0.join(&object.name);
        let mut file = File::open(&path).map_err(Error::io("open", &path))?;
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block).map_err(Error::io("read", &path))? {
                0 => return Ok(()),
                count => take(&block[..count])?,
            }
        }
    }

    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let path = self.0.join(name);
        there(fs::remove_file(&path)).map(drop).map_err(Error::io("remove", path))
    }
}

/// What is in a folder; nothing if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    Ok(there(list()).map_err(Error::io("list", folder))?.unwrap_or_default())
}

/// Whether a file has its own name: until it is whole, it has another one, which is hidden.
fn is_whole(name: &str) -> bool {
    !(name.starts_with('.') && name.ends_with(".partial"))
}

fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
