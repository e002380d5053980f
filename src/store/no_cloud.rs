//! In place of buckets, in a program without the feature `cloud`: there are none.

use std::io::Read;

use super::object::Object;
use super::place::Cloud;
use super::settings::Settings;
use crate::Result;
use crate::error::StoreError;

#[derive(Clone, Debug)]
pub(super) enum Bucket {}

impl Bucket {
    pub(super) fn open(url: &str, _: (Cloud, &str, &str), _: &Settings) -> Result<Self> {
        Err(StoreError::NoFeature { place: url.to_owned() }.into())
    }

    pub(super) fn names(&self) -> Result<Vec<String>> {
        match *self {}
    }

    pub(super) fn list(&self) -> Result<Vec<Object>> {
        match *self {}
    }

    pub(super) fn find(&self, _: &str) -> Result<Option<Object>> {
        match *self {}
    }

    pub(super) fn read(&self, _: &str) -> Result<Option<Vec<u8>>> {
        match *self {}
    }

    pub(super) fn write(&self, _: &str, _: u64, _: &mut dyn Read) -> Result<()> {
        match *self {}
    }

    pub(super) fn download(&self, _: &Object, _: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match *self {}
    }

    pub(super) fn remove(&self, _: &str) -> Result<()> {
        match *self {}
    }
}
