//! A place in which objects have names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::cloud::Bucket;
use super::folder::Folder;
use super::object::Object;
use super::place::{Place, parse};
use super::settings::Settings;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::StoreError;
use crate::{Error, Result};

/// A place in which objects have names: a folder, or a bucket with a prefix. A name may have slashes.
#[derive(Clone, Debug)]
pub struct Store {
    url: String,
    kind: Kind,
    /// How often it does something again where a connection was cut.
    again: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Folder(Folder),
    Bucket(Bucket),
}

impl Store {
    /// The store at a place: a folder, also as `file:///PATH`; or `s3://BUCKET/PATH`, `gs://BUCKET/PATH` or
    /// `az://CONTAINER/PATH`. Credentials come from the environment. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// [`StoreError`]: a place that no store can have, a program without the feature `cloud`, or settings in
    /// the environment that cannot be used.
    pub fn open(place: &str) -> Result<Self> {
        Self::with(place, &Settings::default())
    }

    /// As [`Store::open`], with these settings.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with(place: &str, settings: &Settings) -> Result<Self> {
        let url = match place.trim_end_matches('/') {
            "" => place,
            url => url,
        };
        let kind = match parse(place)? {
            Place::Folder(path) => Kind::Folder(Folder::at(path)),
            Place::Bucket { cloud, bucket, path } => {
                Kind::Bucket(Bucket::open(url, (cloud, bucket, path), settings)?)
            }
        };
        Ok(Self { url: url.to_owned(), kind, again: settings.again() })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where an object of this name is.
    pub fn url_of(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// The names of the objects in it whose names have no slash.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn names(&self) -> Result<Vec<String>> {
        self.again(|| match &self.kind {
            Kind::Folder(folder) => folder.names(),
            Kind::Bucket(bucket) => bucket.names(),
        })
    }

    /// All objects in it, sorted by their names.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn list(&self) -> Result<Vec<Object>> {
        let mut objects = self.again(|| match &self.kind {
            Kind::Folder(folder) => folder.list(),
            Kind::Bucket(bucket) => bucket.list(),
        })?;
        objects.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    /// The object of this name, if there is one.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn find(&self, name: &str) -> Result<Option<Object>> {
        match &self.kind {
            Kind::Folder(folder) => folder.find(name),
            Kind::Bucket(bucket) => bucket.find(name),
        }
    }

    /// Reads a small object. `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.again(|| match &self.kind {
            Kind::Folder(folder) => folder.read(name),
            Kind::Bucket(bucket) => bucket.read(name),
        })
    }

    /// Writes a small object. It replaces one of the same name.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.again(|| self.write(name, bytes.len() as u64, &mut &*bytes))
    }

    /// Writes a file as an object, a large one in parts, and sees that the store then has all of it. Returns
    /// its length and its checksum. After a failure there is no such object, or still the older one.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn upload(&self, name: &str, path: &Path) -> Result<(u64, Checksum)> {
        let (bytes, summed) = self.again(|| {
            let file = File::open(path).map_err(Error::io("open", path))?;
            let bytes = file.metadata().map_err(Error::io("read", path))?.len();
            let mut summed = Summed { file, sum: ChecksumBuilder::new(), bytes: 0 };
            self.write(name, bytes, &mut summed)?;
            Ok((bytes, summed))
        })?;
        let found = self.find(name)?.map_or(0, |object| object.bytes);
        match found == bytes && summed.bytes == bytes {
            true => Ok((bytes, summed.sum.checksum())),
            false => Err(StoreError::Length { url: self.url_of(name), expected: bytes, found }.into()),
        }
    }

    /// Does something again where a connection was cut.
    fn again<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..self.again {
            match act() {
                Err(Error::Store(error)) if matches!(*error, StoreError::Cut { .. }) => {}
                done => return done,
            }
        }
        act()
    }

    fn write(&self, name: &str, bytes: u64, from: &mut dyn Read) -> Result<()> {
        match &self.kind {
            Kind::Folder(folder) => folder.write(name, from),
            Kind::Bucket(bucket) => bucket.write(name, bytes, from),
        }
    }

    /// Reads an object from its beginning to its end, in pieces.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`], and what `take` returns. [`StoreError::Replaced`] when it is not the
    /// object any more that was found or listed.
    pub fn download(&self, object: &Object, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut found = 0;
        let mut count = |piece: &[u8]| {
            found += piece.len() as u64;
            take(piece)
        };
        match &self.kind {
            Kind::Folder(folder) => folder.download(object, &mut count)?,
            Kind::Bucket(bucket) => bucket.download(object, &mut count)?,
        }
        match found == object.bytes {
            true => Ok(()),
            false => {
                let (url, expected) = (self.url_of(&object.name), object.bytes);
                Err(StoreError::Length { url, expected, found }.into())
            }
        }
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn remove(&self, name: &str) -> Result<()> {
        match &self.kind {
            Kind::Folder(folder) => folder.remove(name),
            Kind::Bucket(bucket) => bucket.remove(name),
        }
    }
}

/// A file, and the checksum of what was read of it.
struct Summed {
    file: File,
    sum: ChecksumBuilder,
    bytes: u64,
}

impl Read for Summed {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(into)?;
        self.sum.add(&into[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}
