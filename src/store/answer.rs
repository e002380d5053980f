//! What an error of `object_store` means, and what to do then.

use std::error::Error as _;
use std::iter::successors;

use object_store::client::{HttpError, HttpErrorKind};

use super::place::Cloud;
use crate::Error;
use crate::error::{Problem, StoreError};

/// The most letters of a store's own words that a message has.
const LONGEST: usize = 300;

/// Who answers.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) cloud: Cloud,
    pub(super) url: String,
}

impl Answer {
    pub(super) fn url_of(&self, name: &str) -> String {
        match name {
            "" => self.url.clone(),
            name => format!("{}/{name}", self.url),
        }
    }

    /// The error for a file that cannot be read while it is written to an object of this name.
    pub(super) fn unreadable(&self, name: &str, error: std::io::Error) -> Error {
        let source = Problem::because(error.to_string(), error);
        StoreError::Failed { what: "read the file for", url: self.url_of(name), source }.into()
    }

    /// The error for a request that failed.
    pub(super) fn failed(&self, what: &'static str, name: &str, error: object_store::Error) -> Error {
        let (url, text) = (self.url_of(name), error.to_string());
        let cure = self.cloud.credentials();
        let status = status(&text);
        let transport = successors(error.source(), |&error| error.source())
            .find_map(|error| Some(error.downcast_ref::<HttpError>()?.kind()));
        let asks_machine = ["169.254.", "metadata.google.internal"].iter().any(|at| text.contains(at));
        // What the network says is innermost.
        let innermost = successors(error.source(), |&error| error.source()).last();
        let said = match (transport, innermost) {
            (Some(_), Some(innermost)) => innermost.to_string(),
            _ => text,
        };
        let source = Problem::because(words(&said), error);
        match (status, transport) {
            _ if asks_machine => StoreError::NoCredentials { what, url, cure, source },
            (Some(404), _) => StoreError::Missing { what, url, source },
            (Some(401 | 403), _) => StoreError::Refused { what, url, cure, source },
            (Some(status @ (408 | 429 | 500..)), _) => StoreError::Busy { what, url, status, source },
            (
                None,
                Some(
                    HttpErrorKind::Decode
                    | HttpErrorKind::Interrupted
                    | HttpErrorKind::Request
                    | HttpErrorKind::Timeout,
                ),
            ) => StoreError::Cut { what, url, source },
            (None, Some(_)) => {
                let cure = self.cloud.endpoint();
                StoreError::Unreachable { what, url, cure, source }
            }
            _ => StoreError::Failed { what, url, source },
        }
        .into()
    }
}

/// The error for settings of the environment that cannot be used.
pub(super) fn unusable(cloud: Cloud, url: &str, error: object_store::Error) -> Error {
    let source = Problem::because(words(&error.to_string()), error);
    StoreError::Settings { url: url.to_owned(), cure: cloud.credentials(), source }.into()
}

impl Cloud {
    fn credentials(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION in the environment; files in \
                 ~/.aws are not read"
            }
            Self::Google => "set GOOGLE_SERVICE_ACCOUNT to the file of a service account's key",
            Self::Azure => "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        }
    }

    fn endpoint(self) -> &'static str {
        match self {
            Self::S3 => "look at the network and at AWS_ENDPOINT_URL; http:// needs AWS_ALLOW_HTTP=true",
            Self::Google => "look at the network",
            Self::Azure => "look at the network and at AZURE_STORAGE_ENDPOINT",
        }
    }
}

/// The number of a server's answer. The type that has it is private in the crate, so it is read from the
/// text.
fn status(text: &str) -> Option<u16> {
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

/// What a store says, in a line. Of an answer in XML, its code and its message.
fn words(text: &str) -> String {
    let between = |tag: &str| {
        let (_, after) = text.split_once(&format!("<{tag}>"))?;
        Some(after.split_once(&format!("</{tag}>"))?.0)
    };
    let line = match (between("Code"), between("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
