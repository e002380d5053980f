//! Encrypted connections: TLS 1.3. The side that listens has a key of its own, which it has made at its start
//! and which nobody has confirmed. So TLS alone does not say who is at the other end. What does is a proof
//! that is made of this very session: see `handshake`.

mod keys;
mod session;

pub(super) use session::Tls;
