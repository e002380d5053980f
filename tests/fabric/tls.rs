//! Encrypted connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use pipewright::fabric::{self, Membership, Tag, Transport, World};
use pipewright::id::WorldRank;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

use crate::gate::{ANSWER, ASK, PROGRAM, SECRET, member, secret};
use crate::worlds::{free_address, in_processes_like, place};
use crate::{Ends, Number, ROOM, mesh};

/// An address of this machine that only process 0 has: so the others take it for another machine.
fn far_address() -> String {
    free_address().replace("127.0.0.1", "127.0.0.2")
}

fn encrypting(processes: u32, address: String) -> Membership {
    Membership { secret: Some(secret(SECRET)), tls: true, replaces: false, ..place(processes, address) }
}

/// A process for each rank. Those to process 0 are encrypted all the way.
pub(crate) fn encrypted(ranks: u32) -> Ends {
    let all = in_processes_like(&encrypting(ranks, far_address()), |world| crate::ends(world, ranks));
    all.into_iter().flatten().collect()
}

/// More than the buffers of sockets hold.
const BLOCKS: usize = 64;

#[test]
fn two_processes_that_both_send_much_and_read_nothing_yet_do_not_wait_for_ever() {
    let sums = in_processes_like(&encrypting(2, far_address()), |world| {
        let process = world.process();
        let (mut ends, peers) = fabric::ends::<Number>(world, &mesh(2, 2), 2, ROOM).expect("connected");
        let (mut end, other) = (ends.pop().expect("one rank"), WorldRank(1 - process));
        for number in 0..BLOCKS {
            end.send_bytes(other, Tag(0), vec![number as u8; (1 << 20) + number]).expect("sent");
        }
        for number in 0..BLOCKS {
            let block = end.recv_bytes(other, Tag(0)).expect("it comes");
            assert!(block.len() == (1 << 20) + number && block.iter().all(|byte| *byte == number as u8));
        }
        peers.share("the end of the test", Ok(Vec::new())).expect("both are done").len()
    });
    assert_eq!(sums, [2, 2]);
}

/// Passes on what comes from one to the other, and keeps it.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, heard: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        heard.lock().expect("no panic").extend_from_slice(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// What somebody hears on the way between two processes that send each other `said`.
fn overheard(tls: bool, said: &'static [u8]) -> Vec<u8> {
    let (address, heard) = (far_address(), Arc::new(Mutex::new(Vec::new())));
    let port = TcpListener::bind("127.0.0.3:0").expect("a port");
    let on_the_way = port.local_addr().expect("it has one").to_string();
    let (to, keeps) = (address.clone(), Arc::clone(&heard));
    // It ends with this test program.
    thread::spawn(move || {
        for from in port.incoming() {
            let (from, to) = (from.expect("it comes"), TcpStream::connect(&to).expect("process 0 is there"));
            for (from, to) in [(&from, &to), (&to, &from)] {
                let ends = [from, to].map(|end| end.try_clone().expect("it is open"));
                let keeps = Arc::clone(&keeps);
                thread::spawn(move || pass_on(&ends[0], &ends[1], &keeps));
            }
        }
    });
    let join = |process: u32, address: &str| {
        let membership = Membership { process, tls, ..encrypting(2, address.to_owned()) };
        let world = World::join(&membership, PROGRAM).expect("both come");
        let (mut ends, peers) = fabric::ends::<Number>(world, &mesh(2, 2), 2, ROOM).expect("connected");
        let mut end = ends.pop().expect("one rank");
        end.send_bytes(WorldRank(1 - process), Tag(0), said.to_vec()).expect("sent");
        assert_eq!(end.recv_bytes(WorldRank(1 - process), Tag(0)).expect("it comes"), said);
        peers.share("the end of the test", Ok(Vec::new())).expect("both are done");
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address));
        // Process 0 listens before somebody connects to it.
        drop(crate::gate::connect(&address));
        join(1, &on_the_way);
        first.join().expect("no panic");
    });
    std::mem::take(&mut *heard.lock().expect("no panic"))
}

#[test]
fn whoever_listens_on_the_way_hears_neither_the_config_nor_what_ranks_send() {
    let said = &b"numbers that nobody else may know"[..];
    let has = |heard: &[u8], text: &[u8]| heard.windows(text.len()).any(|part| part == text);
    let config = b"a line of the config";
    let open = overheard(false, said);
    assert!(has(&open, said) && has(&open, config), "without encryption all is heard");
    let closed = overheard(true, said);
    assert!(closed.len() > 1000, "{} bytes", closed.len());
    assert!(!has(&closed, said) && !has(&closed, config) && !has(&closed, SECRET.as_bytes()));
}

/// Takes any key, as a process does.
#[derive(Debug)]
struct AnyKey;

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
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn own_key() -> Arc<CertifiedKey> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let key = PrivatePkcs8KeyDer::from(made.expect("random numbers").as_ref().to_vec());
    let key = any_supported_type(&key.into()).expect("a key");
    let public = CertificateDer::from(key.public_key().expect("it has one").as_ref().to_vec());
    Arc::new(CertifiedKey::new(vec![public], key))
}

/// Passes on the proofs between process 1 and process 0, and then makes an encrypted connection with each.
fn in_the_middle(port: &TcpListener, to: &str) {
    let (mut from, _) = port.accept().expect("process 1 comes");
    let mut to = crate::gate::connect(to);
    let mut pass = |count: usize, to_first: bool| {
        let (from, to) = match to_first {
            true => (&mut from, &mut to),
            false => (&mut to, &mut from),
        };
        let mut bytes = vec![0; count];
        from.read_exact(&mut bytes).expect("said");
        to.write_all(&bytes).expect("heard");
    };
    for (count, to_first) in [(ASK, true), (ANSWER, false), (32, true), (33, false)] {
        pass(count, to_first);
    }
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let server = builder
        .with_safe_default_protocol_versions()
        .expect("known")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own_key())));
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let client = builder
        .with_safe_default_protocol_versions()
        .expect("known")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_no_client_auth();
    let name = ServerName::try_from("pipewright").expect("a name");
    let mut from = StreamOwned::new(ServerConnection::new(Arc::new(server)).expect("valid"), from);
    let mut to = StreamOwned::new(ClientConnection::new(Arc::new(client), name).expect("valid"), to);
    // Now it can read and write everything, and passes on the proofs of both.
    let mut proof = [0; 32];
    from.read_exact(&mut proof).expect("process 1 proves");
    to.write_all(&proof).expect("sent");
    to.flush().expect("sent");
    // Process 0 has closed the connection.
    let answer = to.read_exact(&mut proof);
    let proof = match answer {
        Ok(()) => proof,
        Err(_) => [0; 32],
    };
    let _ = from.write_all(&proof).and_then(|()| from.flush());
}

#[test]
fn somebody_in_the_middle_who_passes_on_the_proofs_is_found_out_by_both() {
    let (address, port) = (far_address(), TcpListener::bind("127.0.0.3:0").expect("a port"));
    let on_the_way = port.local_addr().expect("it has one").to_string();
    let join = |process, address: &str, deadline| {
        let tls = true;
        World::join(&Membership { tls, ..member(process, address, deadline) }, PROGRAM)
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 5));
        scope.spawn(|| in_the_middle(&port, &address));
        let error = join(1, &on_the_way, 20).expect_err("somebody is in the middle");
        assert_eq!(
            error.to_string(),
            format!(
                "what listens at {on_the_way} cannot prove that it is process 0 of this run: another run or \
                 a stranger has that port; give all processes another MASTER_PORT or launch.address"
            )
        );
        let error = first.join().expect("no panic").expect_err("nobody else comes").to_string();
        let expected = "a process came that calls itself 1 and does not know the secret";
        assert!(error.ends_with(expected), "{error}");
    });
}
