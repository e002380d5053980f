//! What both ends of a session need to begin it.

use std::io;
use std::sync::{Arc, OnceLock};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ServerConnection};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, Connection, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig, SignatureScheme,
};

/// A session of this side. `connects`: whether it is the side that connects.
pub(super) fn session(connects: bool) -> io::Result<Connection> {
    static ENDS: OnceLock<Result<Ends, String>> = OnceLock::new();
    let ends = ENDS.get_or_init(|| Ends::new().map_err(|error| error.to_string()));
    let Ends { client, server } = ends.as_ref().map_err(|why| io::Error::other(why.as_str()))?;
    match connects {
        // The name is not looked at.
        true => ServerName::try_from("pipewright")
            .map_err(io::Error::other)
            .and_then(|name| ClientConnection::new(Arc::clone(client), name).map_err(io::Error::other))
            .map(Connection::from),
        false => ServerConnection::new(Arc::clone(server)).map_err(io::Error::other).map(Connection::from),
    }
}

/// The settings of both sides.
struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Ends {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let crypto = Arc::new(provider::default_provider());
        let verifier = Arc::new(AnyKey(Arc::clone(&crypto)));
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&crypto))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let own_key = Arc::new(AlwaysResolvesServerRawPublicKeys::new(own_key(&crypto)?));
        let mut server = ServerConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(own_key);
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// A new key, without a certificate (RFC 7250).
fn own_key(crypto: &CryptoProvider) -> Result<Arc<CertifiedKey>, Box<dyn std::error::Error>> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let made = made.map_err(|_| "the system gives no random numbers")?;
    let key = PrivatePkcs8KeyDer::from(made.as_ref().to_vec());
    let key = crypto.key_provider.load_private_key(key.into())?;
    let public = key.public_key().ok_or("the key has no public part")?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

/// Takes every key. That its owner belongs to the run is proved afterwards.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
