//! How a store is asked.

/// How often a request is made again.
const RETRIES: usize = 10;

/// How often something is done again as a whole where a connection was cut. The crate makes a request again,
/// but not if its answer was cut in the middle.
const AGAIN: usize = 3;

/// How a store is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often a request is made again that a store did not answer, or that it could not do. Each time the
    /// wait is longer. Default: 10, which is about half a minute.
    pub retries: usize,
    /// Settings of a store in the cloud, by the names of variables of the environment in small letters, such
    /// as `aws_endpoint_url`. They are stronger than the environment. Default: none.
    pub keys: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { retries: RETRIES, keys: Vec::new() }
    }
}

impl Settings {
    /// How often something is done again as a whole where a connection was cut.
    pub(super) fn again(&self) -> usize {
        self.retries.min(AGAIN)
    }
}
