//! What both ends of a session need to begin it.

use std::io;
use std::sync::Arc;

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
    let crypto = Arc::new(provider::default_provider());
    let session = if connects { client(crypto) } else { server(crypto) };
    session.map_err(io::Error::other)
}

fn client(crypto: Arc<CryptoProvider>) -> Result<Connection, Box<dyn std::error::Error + Send + Sync>> {
    let verifier = Arc::new(AnyKey(Arc::clone(&crypto)));
    let mut client = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    // The name is not looked at.
    let name = ServerName::try_from("pipewright")?;
    Ok(ClientConnection::new(Arc::new(client), name)?.into())
}

fn server(crypto: Arc<CryptoProvider>) -> Result<Connection, Box<dyn std::error::Error + Send + Sync>> {
    let key = Arc::new(AlwaysResolvesServerRawPublicKeys::new(new_key(&crypto)?));
    let mut server = ServerConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(key);
    server.send_tls13_tickets = 0;
    Ok(ServerConnection::new(Arc::new(server))?.into())
}

/// A key of this session alone, without a certificate (RFC 7250).
fn new_key(crypto: &CryptoProvider) -> Result<Arc<CertifiedKey>, Box<dyn std::error::Error + Send + Sync>> {
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
