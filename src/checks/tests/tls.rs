//! Attempts at TLS servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;

/// 1 January 2020 and 2090, in Unix seconds.
const PAST: u64 = 1_577_836_800;
const FUTURE: u64 = 3_786_912_000;

/// An authority, in a file that is removed at the end of the test.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    path: PathBuf,
    file: Arc<AuthoritiesFile>,
}

impl Authority {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let path = std::env::temp_dir().join(format!("kube-canary-checks-{}-{number}.pem", std::process::id()));
        fs::write(&path, issuer.pem()).unwrap();
        let file = Arc::new(AuthoritiesFile::new(path.clone()));
        Self { issuer, path, file }
    }

    pub fn context(&self) -> Context<'_> {
        Context { authorities: Some(&self.file), ..CONTEXT }
    }

    /// Makes a server whose certificate has this name and ends in these years.
    pub fn server(&self, name: &str, (from, to): (i32, i32)) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        acceptor(certificate.der().clone(), &key, &[&rustls::version::TLS13, &rustls::version::TLS12])
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn acceptor(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn target(port: u16) -> CheckTarget {
    CheckTarget::Tls(loopback(port))
}

/// Makes an attempt at a server that completes its handshakes, if the client does.
async fn shaken(server: TlsAcceptor, context: &Context<'_>) -> Attempt {
    attempt_at(target, *context, |stream| async move {
        if let Ok(mut stream) = server.accept(stream).await {
            // A clean end: close_notify without any data.
            assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
        }
    })
    .await
}

const USUAL: (i32, i32) = (2020, 2090);

#[tokio::test]
async fn a_whole_handshake_reads_when_the_certificate_expires() {
    let authority = Authority::new();
    for context in [authority.context(), CONTEXT] {
        let found = shaken(authority.server("127.0.0.1", USUAL), &context).await;
        assert_eq!((found.end, found.certificate_not_after), (Ok(()), Some(FUTURE)));
        assert!(has_phases(&found, &[CheckPhase::Connect, CheckPhase::Handshake]));
    }
    let target = |port| CheckTarget::ApiServer { server: loopback(port), authorities: Arc::clone(&authority.file) };
    let server = authority.server("127.0.0.1", USUAL);
    let found = attempt_at(target, CONTEXT, |stream| async move {
        assert_eq!(server.accept(stream).await.unwrap().read(&mut [0; 16]).await.unwrap(), 0);
    });
    assert_eq!(found.await.end, Ok(()));
}

#[tokio::test]
async fn each_fault_of_a_certificate_has_its_reason() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (trusted, any, unknown) = (authority.context(), CONTEXT, other.context());
    let expired = Err(CheckFailure::CertificateExpired);
    for (name, years, context, end) in [
        ("127.0.0.1", (2010, 2020), &trusted, expired),
        ("127.0.0.1", (2010, 2020), &any, expired),
        ("127.0.0.1", (2010, 2020), &unknown, expired),
        ("127.0.0.1", (2080, 2090), &trusted, expired),
        ("127.0.0.1", (2080, 2090), &any, expired),
        ("10.0.0.1", USUAL, &trusted, Err(CheckFailure::CertificateName)),
        ("a.example", USUAL, &trusted, Err(CheckFailure::CertificateName)),
        ("a.example", USUAL, &any, Ok(())),
        ("127.0.0.1", USUAL, &unknown, Err(CheckFailure::CertificateUntrusted)),
    ] {
        let found = shaken(authority.server(name, years), context).await;
        assert_eq!(found.end, end, "{name} {years:?}");
        let not_after = if years.1 == 2020 { PAST } else { FUTURE };
        assert_eq!(found.certificate_not_after, Some(not_after), "{name} {years:?}");
        assert_eq!(has_phases(&found, &[CheckPhase::Connect]), end.is_err());
    }
}

#[tokio::test]
async fn a_name_is_verified_and_sent_without_the_dot_at_its_end() {
    let authority = Authority::new();
    let server = authority.server("a.example", USUAL);
    let host = HostPort { host: Host::Name("A.example.".into()), port: 1 };
    let found = attempt_at(
        |_| CheckTarget::Tls(host.clone()),
        authority.context(),
        |stream| async move {
            let stream = server.accept(stream).await.unwrap();
            assert_eq!(stream.get_ref().1.server_name(), Some("a.example"));
        },
    );
    assert_eq!(found.await.end, Ok(()));
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_accepted_if_it_is_in_the_bundle() {
    let (key, path) = (KeyPair::generate().unwrap(), Authority::new());
    let certificate = |not_after| {
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(not_after, 1, 1);
        params.self_signed(&key).unwrap()
    };
    let server = |not_after| acceptor(certificate(not_after).der().clone(), &key, &[&rustls::version::TLS13]);
    assert_eq!(shaken(server(2090), &path.context()).await.end, Err(CheckFailure::CertificateUntrusted));
    fs::write(&path.path, certificate(2090).pem()).unwrap();
    assert_eq!(shaken(server(2090), &path.context()).await.end, Ok(()));
    assert_eq!(shaken(server(2020), &path.context()).await.end, Err(CheckFailure::CertificateExpired));
    assert_eq!(shaken(server(2090), &CONTEXT).await.end, Ok(()));
}

#[tokio::test]
async fn a_server_of_tls_1_2_is_checked_as_well() {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().self_signed(&key).unwrap();
    let server = acceptor(certificate.der().clone(), &key, &[&rustls::version::TLS12]);
    assert_eq!(shaken(server, &CONTEXT).await.end, Ok(()));
}

#[tokio::test]
async fn what_is_no_handshake_has_its_reason() {
    let huge = [&[22, 3, 3, 0x40, 0, 2, 0xff, 0xff, 0xff][..], &[0; 0x4000]].concat();
    for (what, text, end) in [
        ("nothing", &b""[..], CheckFailure::Closed),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n", CheckFailure::Malformed),
        ("zeros", &[0; 64], CheckFailure::Malformed),
        ("a half record", &[22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3], CheckFailure::Closed),
        ("a wrong ServerHello", &[22, 3, 3, 0, 6, 2, 0, 0, 2, 3, 3], CheckFailure::Malformed),
        ("an alert", &[21, 3, 3, 0, 2, 2, 40], CheckFailure::Tls),
        ("application data", &[23, 3, 3, 0, 2, 1, 1], CheckFailure::Tls),
        ("a huge message", &huge, CheckFailure::Malformed),
    ] {
        let found = attempt_at(target, CONTEXT, |mut stream| async move {
            stream.read_u8().await.unwrap();
            _ = stream.write_all(text).await;
            stream.shutdown().await.ok();
            read_to_end(&mut stream).await;
        });
        let found = found.await;
        assert_eq!(found.end, Err(end), "{what}");
        assert!(has_phases(&found, &[CheckPhase::Connect]) && found.certificate_not_after.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_or_silent_handshake_is_a_timeout() {
    for text in [&b""[..], &[22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3, 0, 0, 0, 0]] {
        let found = attempt_at(target, CONTEXT, |mut stream| async move {
            for byte in text {
                tokio::time::sleep(Duration::from_secs(1)).await;
                _ = stream.write_all(&[*byte]).await;
            }
            read_to_end(&mut stream).await;
        });
        assert_eq!(found.await.end, Err(CheckFailure::Timeout), "{} bytes", text.len());
    }
}

#[tokio::test]
async fn a_bundle_that_cannot_be_read_is_no_fault_of_the_server() {
    let empty = Authority::new();
    fs::write(&empty.path, "no certificate\n").unwrap();
    for path in [&*empty.path, Path::new("/nowhere/ca.pem"), Path::new("/dev/zero")] {
        let file = AuthoritiesFile::new(path.to_owned());
        let context = Context { authorities: Some(&file), ..CONTEXT };
        let found = attempt(&target(9), "127.0.0.1:9".parse().unwrap(), &context).await;
        assert_eq!(found, ended(CheckFailure::Other), "{}", path.display());
    }
}
