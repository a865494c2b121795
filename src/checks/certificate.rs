//! Which certificates a check accepts, and when they expire.
//!
//! The traps:
//! * The end of a certificate that has expired must be known, too. rustls tells no certificate of a
//!   handshake that failed, so the verifier keeps it.
//! * rustls does not say when a certificate expires. It does if it is asked for a time at which
//!   each has expired, and no authority is needed for that. Rejected: a parser of our own, or
//!   x509-parser, for one field.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube_canary_model::check::CheckFailure;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::failure::failure_of_certificate;
use crate::http::tls;

/// Verifies the certificate of one handshake.
#[derive(Debug)]
pub struct CheckVerifier {
    /// Empty if any certificate is accepted that is valid at this time.
    authorities: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    /// When the certificate expires, in Unix seconds.
    not_after: OnceLock<u64>,
}

impl CheckVerifier {
    /// Makes a verifier that trusts these authorities. Without them, any certificate is accepted
    /// that is valid at this time.
    pub fn new(authorities: Option<Arc<RootCertStore>>) -> Self {
        let authorities = authorities.unwrap_or_else(|| Arc::new(RootCertStore::empty()));
        let algorithms = tls::provider().signature_verification_algorithms;
        Self { authorities, algorithms, not_after: OnceLock::new() }
    }

    /// Returns when the certificate expires, in Unix seconds, once it was verified.
    pub fn not_after(&self) -> Option<u64> {
        self.not_after.get().copied()
    }

    fn verify_at(
        &self,
        certificate: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        time: UnixTime,
    ) -> Result<(), Error> {
        let Self { authorities, algorithms, .. } = self;
        verify_server_cert_signed_by_trust_anchor(certificate, authorities, intermediates, time, algorithms.all)
    }

    /// Keeps when a certificate expires.
    fn note_end(&self, certificate: &ParsedCertificate<'_>) {
        let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
        if let Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) =
            self.verify_at(certificate, &[], end_of_time)
        {
            _ = self.not_after.set(not_after.as_secs());
        }
    }

    /// Whether a certificate has the key of an authority: a server that signs its own certificate,
    /// which is also in the bundle.
    fn is_authority(&self, certificate: &ParsedCertificate<'_>) -> bool {
        let key = certificate.subject_public_key_info();
        // An authority has the same without the tag and length of the sequence.
        let is_same = |authority: &[u8]| !authority.is_empty() && key.as_ref().ends_with(authority);
        self.authorities.roots.iter().any(|authority| is_same(&authority.subject_public_key_info))
    }

    /// Whether an error is kept if any certificate is accepted.
    fn concerns_any_trust(&self, error: &Error) -> bool {
        let Error::InvalidCertificate(error) = error else { return true };
        let failure = failure_of_certificate(error);
        !self.authorities.is_empty() || matches!(failure, CheckFailure::CertificateExpired | CheckFailure::Malformed)
    }
}

impl ServerCertVerifier for CheckVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = ParsedCertificate::try_from(end_entity).and_then(|certificate| {
            self.note_end(&certificate);
            match self.verify_at(&certificate, intermediates, now) {
                // The time is verified first.
                Err(Error::InvalidCertificate(error))
                    if failure_of_certificate(&error) == CheckFailure::CertificateUntrusted
                        && self.is_authority(&certificate) => {}
                verified => verified?,
            }
            if self.authorities.is_empty() { Ok(()) } else { verify_server_name(&certificate, name) }
        });
        match verified {
            Err(error) if self.concerns_any_trust(&error) => Err(error),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge_signature(verify_tls12_signature(message, certificate, signature, &self.algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge_signature(verify_tls13_signature(message, certificate, signature, &self.algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl CheckVerifier {
    /// If any certificate is accepted, so is one whose form webpki does not read. A signature that
    /// does not fit is a broken server.
    fn judge_signature(
        &self,
        verified: Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match verified {
            Err(Error::InvalidCertificate(error))
                if self.authorities.is_empty() && !matches!(error, CertificateError::BadSignature) =>
            {
                Ok(HandshakeSignatureValid::assertion())
            }
            verified => verified,
        }
    }
}
