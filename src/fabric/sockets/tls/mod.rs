//! Encrypted connections: TLS 1.3. The side that listens makes a key for each connection, and nobody has
//! confirmed it. So TLS alone does not say who is at the other end. What does is a proof that is made of this
//! very session: see `handshake`.

mod keys;
mod session;

pub(super) use session::{Tls, Wait};
