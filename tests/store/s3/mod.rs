//! A real server of S3, behind a proxy that makes faults.

mod cuts;
mod faults;
mod fetching;
mod proxy;
mod server;

use super::*;
use pipewright::store::Settings;
use proxy::{Asked, Fate, Proxy};
use server::{Bucket, bucket};

/// A store in a bucket, asked through a proxy. A request is made again as often as this.
fn through(proxy: &Proxy, bucket: &Bucket, retries: usize) -> Store {
    Store::with(&bucket.url, &settings(proxy, retries)).expect("it is a place")
}

fn settings(proxy: &Proxy, retries: usize) -> Settings {
    let keys = [
        ("aws_endpoint_url", proxy.url.as_str()),
        ("aws_allow_http", "true"),
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "test"),
        ("aws_region", "us-east-1"),
        ("aws_timeout", "20 seconds"),
    ];
    Settings { retries, keys: keys.map(|(key, value)| (key.to_owned(), value.to_owned())).into() }
}
