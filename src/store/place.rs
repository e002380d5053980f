//! What a text names: a folder, or a bucket and a path in it.

use std::path::Path;

use crate::Result;
use crate::error::StoreError;

/// The stores of the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    S3,
    Google,
    Azure,
}

/// What a text names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Folder(&'a str),
    Bucket {
        cloud: Cloud,
        bucket: &'a str,
        /// Without slashes at its ends. It may be empty.
        path: &'a str,
    },
}

/// Whether a path of a config is a URL, such as `s3://bucket/tokens.bin`.
pub fn is_url(path: &Path) -> bool {
    let scheme = path.to_str().and_then(|text| text.split_once("://"));
    scheme.is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|letter| letter.is_ascii_alphanumeric())
    })
}

/// Refuses a place that no store of this program can have. Asks no store.
///
/// # Errors
/// [`StoreError::Place`], [`StoreError::NoFeature`].
pub fn check(place: &str) -> Result<()> {
    match parse(place)? {
        Place::Bucket { .. } if !cfg!(feature = "cloud") => {
            Err(StoreError::NoFeature { place: place.to_owned() }.into())
        }
        _ => Ok(()),
    }
}

pub(super) fn parse(text: &str) -> Result<Place<'_>> {
    let wrong = |problem| Err(StoreError::Place { place: text.to_owned(), problem }.into());
    if text.is_empty() {
        return wrong("is empty");
    }
    if !is_url(Path::new(text)) {
        return Ok(Place::Folder(text));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let cloud = match scheme {
        "s3" => Cloud::S3,
        "gs" => Cloud::Google,
        "az" => Cloud::Azure,
        "file" if rest.starts_with('/') => return Ok(Place::Folder(rest)),
        "file" => return wrong("does not begin with file:/// and the path of a folder"),
        _ => return wrong("has a scheme that this program does not know"),
    };
    let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    if bucket.is_empty() {
        return wrong("names no bucket");
    }
    match path.split('/').any(|part| part == "." || part == "..") || path.contains("//") {
        true => wrong("has a part of its path that is empty, `.` or `..`"),
        false => Ok(Place::Bucket { cloud, bucket, path }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_bucket_and_any_other_text_a_folder() {
        let bucket = |cloud, bucket, path| Place::Bucket { cloud, bucket, path };
        for (text, place) in [
            ("runs/copies", Place::Folder("runs/copies")),
            ("file:///data/copies", Place::Folder("/data/copies")),
            ("s3://bucket", bucket(Cloud::S3, "bucket", "")),
            ("s3://bucket/a b/c%20d/", bucket(Cloud::S3, "bucket", "a b/c%20d")),
            ("gs://bucket/a", bucket(Cloud::Google, "bucket", "a")),
            ("az://container/a/b", bucket(Cloud::Azure, "container", "a/b")),
        ] {
            assert_eq!(parse(text).expect("a place"), place, "{text}");
        }
        for wrong in ["", "s3://", "s3:///a", "ftp://host/a", "file://host/a", "s3://b/a//b", "s3://b/../a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(!is_url(Path::new("builtin:shakespeare")) && !is_url(Path::new("/data/a")));
    }
}
