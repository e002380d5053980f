//! Objects in a store: a folder, or a bucket of S3, Google Cloud Storage or Azure.
//!
//! A [`Store`] is a place in which objects have names, such as `s3://bucket/runs/small`. An object appears
//! whole or not at all. The cloud needs the feature `cloud`, and this is the only module that uses
//! `object_store`. Its futures run on a runtime of the store's own, on the thread that calls: no signature
//! here is asynchronous.
//!
//! [`fetch`] brings an object, or all objects below a prefix, into a folder of this machine, once.

#[cfg(feature = "cloud")]
mod answer;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "no_cloud.rs"]
mod cloud;
mod fetched;
mod folder;
mod object;
mod objects;
mod place;
mod settings;

pub use fetched::{Fetching, fetch};
pub use object::Object;
pub use objects::Store;
pub use place::{check, is_url};
pub use settings::Settings;
