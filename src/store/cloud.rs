//! A bucket with a prefix, by the crate `object_store`.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, GetOptions, GetRange, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};

use super::answer::{Answer, unusable};
use super::object::Object;
use super::place::Cloud;
use super::settings::Settings;
use crate::error::StoreError;
use crate::{Error, Result};

/// How many bytes a request has at most, unless an upload had too many parts then.
const PART: u64 = 8 << 20;
/// The most parts of an upload. Stores allow 10,000.
const PARTS: u64 = 9_000;
/// How many parts are on their way at a time.
const AT_ONCE: usize = 4;

/// How long a request may take, if the environment does not say it: all parts on their way in it, also where
/// a network is slow.
const TIMEOUT: &str = "120 seconds";

/// A bucket with a prefix.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
    answer: Answer,
    /// The prefix, without slashes at its ends. It may be empty.
    root: String,
    /// How often it reads a part again where the connection was cut.
    again: usize,
}

impl Bucket {
    pub(super) fn open(url: &str, place: (Cloud, &str, &str), settings: &Settings) -> Result<Self> {
        let (cloud, bucket, root) = place;
        // Another part of the program may have chosen already by whom connections are encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::io("start a runtime for", url))?;
        let store = store(cloud, bucket, settings).map_err(|error| unusable(cloud, url, error))?;
        let answer = Answer { cloud, url: url.to_owned() };
        let again = settings.again();
        Ok(Self { store, runtime: Arc::new(runtime), answer, root: root.to_owned(), again })
    }

    pub(super) fn names(&self) -> Result<Vec<String>> {
        let listed = self.runtime.block_on(self.store.list_with_delimiter(self.prefix("")?.as_ref()));
        let objects = listed.map_err(|error| self.answer.failed("list", "", error))?.objects;
        Ok(objects.into_iter().filter_map(|object| self.object(object)).map(|object| object.name).collect())
    }

    pub(super) fn list(&self) -> Result<Vec<Object>> {
        let prefix = self.prefix("")?;
        let listed: object_store::Result<Vec<_>> =
            self.runtime.block_on(self.store.list(prefix.as_ref()).try_collect());
        let objects = listed.map_err(|error| self.answer.failed("list", "", error))?;
        Ok(objects.into_iter().filter_map(|object| self.object(object)).collect())
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<Object>> {
        let path = self.path(name)?;
        match self.runtime.block_on(self.store.head(&path)) {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.answer.failed("look for", name, error)),
            Ok(found) => Ok(Some(Object { name: name.to_owned(), bytes: found.size, tag: found.e_tag })),
        }
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name)?;
        match self.runtime.block_on(async { self.store.get(&path).await?.bytes().await }) {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.answer.failed("read", name, error)),
            Ok(bytes) => Ok(Some(bytes.into())),
        }
    }

    pub(super) fn write(&self, name: &str, bytes: u64, from: &mut dyn Read) -> Result<()> {
        let path = self.path(name)?;
        let part = PART.max(bytes.div_ceil(PARTS));
        self.runtime.block_on(async {
            if bytes <= part {
                let all = read_part(from, part).map_err(|error| self.answer.unreadable(name, error))?;
                let put = self.store.put(&path, all.into()).await;
                return put.map(drop).map_err(|error| self.answer.failed("write", name, error));
            }
            let begun = self.store.put_multipart(&path).await;
            let mut upload = begun.map_err(|error| self.answer.failed("write", name, error))?;
            let sent = match self.send(name, upload.as_mut(), part, from).await {
                Ok(()) => {
                    let ended = upload.complete().await;
                    ended.map(drop).map_err(|error| self.answer.failed("write", name, error))
                }
                Err(error) => Err(error),
            };
            if sent.is_err() {
                // The cause is told. If this fails too, the store has parts without a name, and a rule of the
                // bucket may remove them.
                let _ = upload.abort().await;
            }
            sent
        })
    }

    /// Sends the parts of an upload.
    async fn send(
        &self,
        name: &str,
        upload: &mut dyn MultipartUpload,
        part: u64,
        from: &mut dyn Read,
    ) -> Result<()> {
        let failed = |error| self.answer.failed("write", name, error);
        let mut on_their_way = FuturesUnordered::new();
        loop {
            let bytes = read_part(from, part).map_err(|error| self.answer.unreadable(name, error))?;
            if bytes.is_empty() {
                break;
            }
            on_their_way.push(upload.put_part(bytes.into()));
            if on_their_way.len() == AT_ONCE {
                on_their_way.next().await.transpose().map_err(failed)?;
            }
        }
        on_their_way.try_collect::<()>().await.map_err(failed)
    }

    pub(super) fn download(&self, object: &Object, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let path = self.path(&object.name)?;
        let starts = stream::iter((0..object.bytes.div_ceil(PART)).map(|part| part * PART));
        let parts = starts.map(|start| self.part_again(&path, object, start)).buffered(AT_ONCE);
        self.runtime.block_on(async {
            let mut parts = std::pin::pin!(parts);
            while let Some(part) = parts.next().await {
                take(&part?)?;
            }
            Ok(())
        })
    }

    /// The same as [`Self::part`], again where the connection was cut.
    async fn part_again(&self, path: &Path, object: &Object, start: u64) -> Result<Vec<u8>> {
        for _ in 0..self.again {
            match self.part(path, object, start).await {
                Err(Error::Store(error)) if matches!(*error, StoreError::Cut { .. }) => {}
                done => return done,
            }
        }
        self.part(path, object, start).await
    }

    /// A part of an object, if it is still the same object.
    async fn part(&self, path: &Path, object: &Object, start: u64) -> Result<Vec<u8>> {
        let failed = |error| self.answer.failed("read", &object.name, error);
        let range = start..object.bytes.min(start + PART);
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let got = self.store.get_opts(path, options).await.map_err(failed)?;
        if got.meta.size != object.bytes || (object.tag.is_some() && got.meta.e_tag != object.tag) {
            return Err(StoreError::Replaced { url: self.answer.url_of(&object.name) }.into());
        }
        let bytes = got.bytes().await.map_err(failed)?;
        let (found, expected) = (bytes.len() as u64, range.end - range.start);
        match found == expected {
            true => Ok(bytes.into()),
            false => {
                let url = self.answer.url_of(&object.name);
                Err(StoreError::Length { url, expected, found }.into())
            }
        }
    }

    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        match self.runtime.block_on(self.store.delete(&path)) {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            removed => removed.map_err(|error| self.answer.failed("remove", name, error)),
        }
    }

    /// The path in the bucket of an object of this name; of the prefix, for no name.
    fn path(&self, name: &str) -> Result<Path> {
        let path = Path::parse([self.root.as_str(), name].join("/").trim_matches('/'));
        path.map_err(|_| {
            let problem = "has a part that no name of an object can have";
            StoreError::Place { place: self.answer.url_of(name), problem }.into()
        })
    }

    /// The prefix. `None` for the whole bucket.
    fn prefix(&self, name: &str) -> Result<Option<Path>> {
        Ok(Some(self.path(name)?).filter(|path| !path.as_ref().is_empty()))
    }

    /// What the store tells of an object. `None` if it is outside of the prefix, or the prefix itself.
    fn object(&self, found: ObjectMeta) -> Option<Object> {
        let name = found.location.as_ref().strip_prefix(&self.root)?.trim_start_matches('/').to_owned();
        Some(Object { name, bytes: found.size, tag: found.e_tag }).filter(|object| !object.name.is_empty())
    }
}

/// Reads as many bytes as a part has, or what is left.
fn read_part(from: &mut dyn Read, part: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(part).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a bucket by these settings and the environment.
fn store(cloud: Cloud, bucket: &str, settings: &Settings) -> object_store::Result<Arc<dyn ObjectStore>> {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(200),
        max_backoff: Duration::from_secs(15),
        base: 3.0,
    };
    let retry = RetryConfig { backoff, max_retries: settings.retries, ..RetryConfig::default() };
    /// The three builders have the same methods, and no trait.
    macro_rules! build {
        ($builder:ty, $key:ty, $with_name:ident) => {{
            let mut builder = <$builder>::from_env();
            for (key, value) in &settings.keys {
                builder = builder.with_config(key.parse()?, value);
            }
            let timeout = <$key>::Client(ClientConfigKey::Timeout);
            if builder.get_config_value(&timeout) == <$builder>::default().get_config_value(&timeout) {
                builder = builder.with_config(timeout, TIMEOUT);
            }
            Arc::new(builder.$with_name(bucket).with_retry(retry).build()?)
        }};
    }
    Ok(match cloud {
        Cloud::S3 => build!(AmazonS3Builder, AmazonS3ConfigKey, with_bucket_name),
        Cloud::Google => build!(GoogleCloudStorageBuilder, GoogleConfigKey, with_bucket_name),
        Cloud::Azure => build!(MicrosoftAzureBuilder, AzureConfigKey, with_container_name),
    })
}
