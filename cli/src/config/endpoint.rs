//! The address and port of what a run serves.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// Reads an address and a port. A port alone can be reached from this machine only.
pub(super) fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    from.deserialize_any(Endpoint).map(Some)
}

struct Endpoint;

impl Visitor<'_> for Endpoint {
    type Value = SocketAddr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port such as 9400, or an address and a port such as \"10.0.0.1:9400\"")
    }

    fn visit_i64<E: Error>(self, port: i64) -> Result<SocketAddr, E> {
        match u16::try_from(port) {
            Ok(port @ 1..) => Ok((Ipv4Addr::LOCALHOST, port).into()),
            _ => Err(E::invalid_value(Unexpected::Signed(port), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SocketAddr, E> {
        let parsed = text.parse();
        parsed.map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}
